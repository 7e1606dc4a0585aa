package producers

// Delivery is the value of the column delivery for rows whose process keeps track of their messages.
const Delivery = "tracked"

// IsVisible is an SQL expression about a tracked row t: its message is visible. A process that is not known any more left
// nothing behind.
const IsVisible = `NOT EXISTS (SELECT FROM txsvc.producers p WHERE p.prefix = left(t.uniq_key, 20) AND t.created_at >= p.visible_before)`

// Times is an SQL expression about a tracked row t: the entry of txsvc.visible that has the row; see VisibleAt.
const Times = `(SELECT v.times FROM txsvc.visible v WHERE v.producer = left(t.uniq_key, 20) AND v.before > t.created_at ORDER BY v.before LIMIT 1)`

const (
	// register writes the first watermark of a process, and one after watermarks were lost. One that was given up may be executed
	// after later ones, and takes nothing back.
	register = `INSERT INTO txsvc.producers (prefix, format, visible_before, settled_before, ceiling) VALUES ($1, 2, $2, $3, $4)
		ON CONFLICT (prefix) DO UPDATE SET format = 2, seen_at = clock_timestamp(), visible_before = greatest(producers.visible_before, $2),
			settled_before = greatest(producers.settled_before, $3), ceiling = greatest(producers.ceiling, $4)` + allTrack

	// flush writes the next watermark, where one of those before it is there. They are told apart by their ceilings, because the
	// watermark itself stays where it is while an attempt holds it back.
	flush = `UPDATE txsvc.producers SET seen_at = clock_timestamp(), visible_before = $2, settled_before = $3, ceiling = $4
		WHERE prefix = $1 AND ceiling = ANY ($5)` + allTrack

	// allTrack says whether all processes on this database know tracked rows: those of the version before register every ten
	// minutes.
	allTrack = ` RETURNING NOT EXISTS (SELECT FROM txsvc.producers WHERE format < 2 AND seen_at > clock_timestamp() - interval '11 minutes')`

	last = `SELECT visible_before FROM txsvc.producers WHERE prefix = $1`

	// handOverSince is handOver for the tracked rows of a process that began from one time to another.
	handOverSince = makePending + `id IN (SELECT id FROM txsvc.transactions
			WHERE created_at >= $3 AND created_at < $4 AND delivery = 'tracked' AND left(uniq_key, 20) = $1 LIMIT 5000 FOR UPDATE)`

	logVisible = `INSERT INTO txsvc.visible (producer, before, times) VALUES ($1, $2, $3) ON CONFLICT DO NOTHING`

	// makePending lets tracked rows say by themselves that their message is pending: who claims them has to find out what was sent.
	// $2 is the lease.
	makePending = `UPDATE txsvc.transactions SET delivery = 'pending', attempts = 1, lease_until = decided_at + $2::interval
		WHERE delivery = '` + Delivery + `' AND `

	handOver = makePending + `id = ANY ($1)`

	// forget keeps processes whose rows are to be adopted: without the process they would say that they are visible.
	forget = `DELETE FROM txsvc.producers p WHERE seen_at < clock_timestamp() - $2::interval AND prefix <> $1
		AND NOT EXISTS (SELECT FROM txsvc.transactions t WHERE t.created_at >= p.visible_before AND t.created_at < p.ceiling
			AND t.delivery = 'tracked' AND left(t.uniq_key, 20) = p.prefix)`

	ownHalf = `SELECT EXISTS (SELECT FROM txsvc.producers WHERE prefix = $1)
		OR EXISTS (SELECT FROM txsvc.transactions WHERE id = $2 AND (uniq_key = $3 OR $3 = ANY (fenced)))`

	// underWay says whether an attempt that a living process began by the given time may be under way.
	underWay = `SELECT EXISTS (SELECT FROM txsvc.producers
		WHERE prefix = $1 AND settled_before <= $2 AND seen_at > clock_timestamp() - $3::interval)`

	// silent finds processes that may have left something, and have not been heard of for as long as a lease.
	silent = `SELECT prefix FROM txsvc.producers WHERE visible_before < ceiling AND seen_at < clock_timestamp() - $1::interval`

	// adopt is handOver for the rest of a process. A row on which somebody works is left for the next time.
	adopt = makePending + `id IN (SELECT t.id FROM txsvc.producers p JOIN txsvc.transactions t ON t.created_at >= p.visible_before AND t.created_at < p.ceiling
			WHERE p.prefix = $1 AND t.delivery = 'tracked' AND left(t.uniq_key, 20) = $1 AND t.decided_at < clock_timestamp() - $2::interval
			LIMIT 1000 FOR UPDATE OF t SKIP LOCKED)`
)
