-- Which classes are lost first under attack?
-- threat=null    only this threat
SELECT run, evaluation, threat, label,
       coalesce((
         SELECT any_value(json_extract_string(extra, '$.per_class.classes[' || verdicts.label || ']')) FROM results
         WHERE results.run = verdicts.run AND results.evaluation = verdicts.evaluation
       ), '') AS class,
       count(*) AS images, avg(clean_correct::INT) AS clean_accuracy, avg(robust::INT) AS robust_accuracy
FROM verdicts
WHERE threat IS NOT NULL AND label IS NOT NULL AND ($threat::VARCHAR IS NULL OR threat = $threat)
GROUP BY run, evaluation, threat, label
ORDER BY run, evaluation, threat, robust_accuracy, clean_accuracy, label
