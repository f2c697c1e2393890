-- Which attack broke how many images of each run?
-- threat=null    only this threat
WITH images AS (
  SELECT run, evaluation, threat, size,
         CASE WHEN NOT clean_correct THEN 'wrong without attack' WHEN robust THEN 'not broken'
              ELSE coalesce(broken_by, 'not recorded') END AS outcome
  FROM verdicts
  WHERE threat IS NOT NULL AND ($threat::VARCHAR IS NULL OR threat = $threat)
)
SELECT run, evaluation, threat, outcome, count(*) AS images,
       count(*) / sum(count(*)) OVER (PARTITION BY run, evaluation, threat) AS share,
       median(size) FILTER (outcome NOT IN ('not broken', 'wrong without attack')) AS median_size
FROM images
GROUP BY run, evaluation, threat, outcome
ORDER BY run, evaluation, threat, images DESC, outcome
