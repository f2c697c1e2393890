-- In which settings do the runs differ, beside their robust accuracy?
-- threat=null    robust accuracy at this threat
WITH differing AS (
  SELECT setting FROM settings WHERE setting NOT IN ('name', 'output')
  GROUP BY setting HAVING count(DISTINCT coalesce(value, 'null')) > 1
), best AS (
  SELECT run, min(value) AS robust_accuracy FROM results
  WHERE metric = 'robust_accuracy' AND latest AND trusted AND suite NOT IN ('protocol', 'sweep', 'curve')
    AND ($threat::VARCHAR IS NULL OR threat = $threat)
  GROUP BY run
)
SELECT setting, run, value, robust_accuracy
FROM settings JOIN differing USING (setting) LEFT JOIN best USING (run)
ORDER BY setting, robust_accuracy DESC NULLS LAST, run
