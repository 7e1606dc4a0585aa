// Package producers keeps track of the messages of the rows that processes write, so that a row is written once and never
// marked.
//
// A process is known by the first digits of its UNIQ_KEYs, its prefix. Each of its attempts begins at a time of its own,
// which the row has as created_at. The process knows which of its attempts are under way, and now and then writes one
// watermark: all its tracked rows that began before it are visible. So a tracked row is delivered when it is before the
// watermark of its process; beside the watermark, the process writes when each message became visible, many in one row.
//
// What would hold the watermark back is handed over: the row says by itself that it is pending, and is not tracked any more. When
// the process is gone, others adopt what is not before its watermark.
package producers
