-- What did the evaluations cost, in seconds and in passes for each image?
SELECT run, evaluation, suite, coalesce(max(tier), '') AS tier, device, max(n) AS images, max(seconds) AS seconds,
       max(seconds) / max(n) AS seconds_per_image,
       max((extra->>'$.forwards')::DOUBLE) / max(n) AS forwards_per_image,
       max((extra->>'$.backwards')::DOUBLE) / max(n) AS backwards_per_image
FROM results
WHERE suite NOT IN ('protocol', 'reported') AND n > 0
GROUP BY run, evaluation, suite, device
ORDER BY seconds DESC NULLS LAST, run, evaluation
