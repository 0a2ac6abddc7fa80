-- What dags/flights_features_job.py must yield, written anew for another engine (DuckDB).
-- Variable input_dir: the folder of flights.csv, weather.csv and planes.csv.
WITH
flight AS (
    SELECT
        row_number() OVER () AS id,
        *,
        hour * 60 + minute + dep_delay AS left_at
    FROM read_csv(getvariable('input_dir') || '/flights.csv', nullstr = 'NA')
    WHERE dep_delay IS NOT NULL
),
earlier AS (  -- for each flight, the carrier's departures before it, same airport, same day, less than six hours ago
    SELECT f.id, e.dep_delay, f.left_at - e.left_at AS age
    FROM flight AS f
    JOIN flight AS e USING (origin, carrier, year, month, day)
    WHERE e.left_at < f.left_at AND e.left_at > f.left_at - 360
),
memory AS (SELECT unnest(generate_series(60, 360, 60)) AS memory),
faded AS (
    SELECT id, memory, sum((memory - age) * dep_delay) AS lateness, sum(memory - age) AS weight
    FROM earlier JOIN memory ON age < memory
    GROUP BY id, memory
),
forecast AS (
    SELECT
        f.id, f.origin, f.carrier, f.year, f.month, f.day, f.dep_delay, m.memory,
        floor(100 * coalesce(w.lateness, 0) / (coalesce(w.weight, 0) + 60))::BIGINT AS knock_on
    FROM flight AS f CROSS JOIN memory AS m LEFT JOIN faded AS w ON w.id = f.id AND w.memory = m.memory
),
fit AS (
    SELECT origin, carrier, year, month, day, memory, sum(abs(100 * dep_delay - knock_on)) AS error
    FROM forecast
    GROUP BY ALL
),
best AS (
    SELECT origin, carrier, year, month, day, memory
    FROM fit
    QUALIFY row_number() OVER (PARTITION BY origin, carrier, year, month, day ORDER BY error, memory) = 1
),
scored AS (
    SELECT id, memory, knock_on
    FROM forecast SEMI JOIN best USING (origin, carrier, year, month, day, memory)
)
SELECT
    f.carrier,
    f.hour,
    count(*) AS flights,
    count(*) FILTER (f.dep_delay >= 15) AS late_flights,
    sum(f.dep_delay) AS delay_minutes,
    sum(s.knock_on) AS knock_on,
    max(s.knock_on) AS worst_knock_on,
    sum(s.memory) AS memory_minutes,
    count(*) FILTER (w.visib < 3 OR w.precip > 0 OR w.wind_speed > 25) AS rough_weather_flights,
    min(w.visib) AS worst_visibility,
    sum(p.seats) AS seats,
    min(p.year) AS oldest_plane,
    count(DISTINCT f.tailnum) AS planes,
    sum(f.distance) / count(*) AS mean_distance
FROM flight AS f
JOIN scored AS s USING (id)
LEFT JOIN read_csv(getvariable('input_dir') || '/weather.csv', nullstr = 'NA') AS w
    ON w.origin = f.origin AND w.time_hour = f.time_hour
LEFT JOIN read_csv(getvariable('input_dir') || '/planes.csv', nullstr = 'NA') AS p
    ON p.tailnum = f.tailnum
GROUP BY f.carrier, f.hour
ORDER BY f.carrier, f.hour
