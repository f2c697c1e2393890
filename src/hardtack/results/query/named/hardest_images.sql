-- Which images do the fewest runs get right under attack?
-- threat=null    only this threat; by default that of most runs
-- most=20        how many images to show
WITH of_runs AS (
  SELECT results.data, verdicts.threat, image, run, any_value(label) AS label,
         bool_and(clean_correct) AS right_unchanged, bool_and(robust) AS right_under_attack,
         mode(adversarial_prediction) FILTER (NOT robust AND clean_correct) AS taken_for
  FROM verdicts JOIN results USING (run, evaluation)
  WHERE results.metric = 'robust_accuracy' AND results.threat = verdicts.threat AND results.latest AND results.trusted
    AND results.suite NOT IN ('protocol', 'sweep', 'curve')
    AND ($threat::VARCHAR IS NULL OR verdicts.threat = $threat)
  GROUP BY results.data, verdicts.threat, image, run, results.checkpoint
), images AS (
  SELECT data, threat, image, any_value(label) AS label, count(*) AS runs, sum(right_unchanged::INT) AS right_unchanged,
         sum(right_under_attack::INT) AS right_under_attack, mode(taken_for) AS usually_taken_for
  FROM of_runs
  GROUP BY data, threat, image
)
SELECT * FROM images
ORDER BY max(runs) OVER (PARTITION BY data, threat) DESC, right_under_attack / runs, right_unchanged / runs, data, threat, image
LIMIT $most
