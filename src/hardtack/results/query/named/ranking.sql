-- Which runs are most robust?
-- threat=null    only this threat, such as linf:8/255
-- data=null      only these images, such as cifar10/test
SELECT threat, data, n, suite, coalesce(tier, '') AS tier, comparison,
       rank() OVER (PARTITION BY comparison ORDER BY value DESC) AS place,
       run, checkpoint, model, value AS robust_accuracy, low, high, evidence
FROM results
WHERE metric IN ('robust_accuracy', 'worst_case_accuracy') AND latest AND trusted
  AND suite NOT IN ('protocol', 'sweep', 'curve')
  AND ($threat::VARCHAR IS NULL OR threat = $threat) AND ($data::VARCHAR IS NULL OR data = $data)
ORDER BY count(*) OVER (PARTITION BY comparison) DESC, threat, data, n, comparison, place, run
