-- What is the mean over seeds of trainings that are otherwise the same?
WITH trainings AS (
  SELECT run, runs.seed AS training_seed, string_agg(setting || '=' || coalesce(value, 'null'), ' ' ORDER BY setting) AS same
  FROM runs JOIN settings USING (run)
  WHERE setting NOT IN ('name', 'output', 'runtime.seed')
  GROUP BY run, training_seed
)
SELECT min(run) AS first_run, count(*) AS trainings, list(training_seed ORDER BY training_seed) AS seeds, metric, threat, data,
       checkpoint, avg(value) AS mean, stddev_samp(value) AS deviation, min(value) AS least, max(value) AS most
FROM results JOIN trainings USING (run)
WHERE latest AND trusted AND suite NOT IN ('analysis', 'protocol')
GROUP BY same, comparison, metric, threat, data, checkpoint
HAVING count(*) > 1
ORDER BY first_run, metric, threat, data, checkpoint
