-- Which runs were not measured yet, or not against AutoAttack?
-- suite=autoattack    the suite that each run should have
SELECT run, path, trained, evaluations,
       CASE WHEN evaluations = 0 THEN 'nothing was measured' ELSE 'no ' || $suite::VARCHAR END AS missing
FROM runs
WHERE NOT EXISTS (SELECT 1 FROM results WHERE results.run = runs.run AND results.suite = $suite::VARCHAR)
ORDER BY evaluations, run
