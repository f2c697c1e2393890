-- What does robustness cost in clean accuracy, and which runs are on the Pareto front?
-- threat=null    only this threat
WITH robust AS (
  SELECT * FROM results
  WHERE metric = 'robust_accuracy' AND latest AND trusted AND suite NOT IN ('protocol', 'sweep', 'curve')
    AND ($threat::VARCHAR IS NULL OR threat = $threat)
), clean AS (
  SELECT run, evaluation, value FROM results WHERE metric = 'clean_accuracy' AND trusted AND suite != 'protocol'
), both_numbers AS (
  SELECT robust.threat, robust.data, robust.n, robust.suite, robust.comparison, robust.run, robust.checkpoint,
         robust.model, clean.value AS clean_accuracy, robust.value AS robust_accuracy
  FROM robust JOIN clean USING (run, evaluation)
)
SELECT threat, data, n, suite, run, checkpoint, model, clean_accuracy, robust_accuracy,
       NOT EXISTS (
         SELECT 1 FROM both_numbers AS other
         WHERE other.comparison = own.comparison
           AND other.clean_accuracy >= own.clean_accuracy AND other.robust_accuracy >= own.robust_accuracy
           AND (other.clean_accuracy > own.clean_accuracy OR other.robust_accuracy > own.robust_accuracy)
       ) AS on_pareto_front
FROM both_numbers AS own
ORDER BY threat, data, n, comparison, robust_accuracy DESC, clean_accuracy DESC, run
