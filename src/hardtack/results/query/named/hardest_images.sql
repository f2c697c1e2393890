-- Which images do the fewest runs get right under attack?
-- threat=null    only this threat; by default that of most measurements
-- most=20        how many images to show
WITH images AS (
  SELECT results.data, verdicts.threat, image, any_value(label) AS label, count(*) AS measured,
         sum(clean_correct::INT) AS right_unchanged, sum(robust::INT) AS right_under_attack,
         mode(adversarial_prediction) FILTER (NOT robust AND clean_correct) AS usually_taken_for
  FROM verdicts JOIN results USING (run, evaluation)
  WHERE results.metric = 'robust_accuracy' AND results.threat = verdicts.threat AND results.latest
    AND results.suite NOT IN ('protocol', 'sweep', 'curve')
    AND ($threat::VARCHAR IS NULL OR verdicts.threat = $threat)
  GROUP BY results.data, verdicts.threat, image
)
SELECT * FROM images
ORDER BY max(measured) OVER (PARTITION BY data, threat) DESC, right_under_attack / measured, right_unchanged / measured,
         data, threat, image
LIMIT $most
