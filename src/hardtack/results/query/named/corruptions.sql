-- Which corruptions cost each run the most accuracy?
SELECT results.run, results.checkpoint, results.data, split_part(view, '/', 1) AS corruption,
       count(DISTINCT view) AS severities, avg(views.value) AS accuracy,
       any_value(clean.value) - avg(views.value) AS lost
FROM views
JOIN results ON results.run = views.run AND results.evaluation = views.evaluation
             AND results.metric = 'mean_corrupted_accuracy' AND results.latest
LEFT JOIN results AS clean ON clean.run = views.run AND clean.evaluation = views.evaluation
                           AND clean.metric = 'clean_accuracy'
WHERE quantity = 'correct'
GROUP BY ALL
ORDER BY results.run, results.checkpoint, results.data, accuracy
