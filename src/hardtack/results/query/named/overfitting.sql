-- Which trainings were best before their end (robust overfitting)?
WITH validated AS (
  SELECT run, epoch, clean_accuracy, robust_accuracy,
         row_number() OVER (PARTITION BY run ORDER BY robust_accuracy DESC, epoch) AS place,
         row_number() OVER (PARTITION BY run ORDER BY epoch DESC) AS from_end
  FROM metrics WHERE kind = 'validation' AND robust_accuracy IS NOT NULL
)
SELECT best.run, best.epoch AS best_epoch, last.epoch AS last_epoch, best.robust_accuracy AS best_robust,
       last.robust_accuracy AS last_robust, best.robust_accuracy - last.robust_accuracy AS lost,
       last.clean_accuracy - best.clean_accuracy AS clean_gained
FROM validated AS best JOIN validated AS last USING (run)
WHERE best.place = 1 AND last.from_end = 1
ORDER BY lost DESC, best.run
