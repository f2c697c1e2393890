-- Which numbers should not be quoted as they stand, and why?
SELECT run, evaluation, metric, threat, value, flags, evidence,
       coalesce(evidence_note, '') AS evidence_note
FROM results
WHERE red_flags > 0 OR evidence IN ('disagrees', 'unverifiable')
ORDER BY evidence = 'disagrees' DESC, red_flags DESC, run, evaluation, metric, threat
