package txn

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"time"
)

// Timing holds every duration on which the protocol's safety or the time of a request depends. All replicas use the same
// values. DefaultTiming gives the reason where it is not obvious; Validate holds them to one another. Durations that concern neither (how
// often something is logged, measured or cleaned up) are named where they are used.
type Timing struct {
	// An END_TRANSACTION under way, and so the lease on a row. See docs/guarantees.md, "Why a message is not doubled".
	WriteWithin  time.Duration // from the lease's start until the frame is written, or dropped
	ArriveWithin time.Duration // from the write until the broker's host has acknowledged it, or the connection is given up (TCP_USER_TIMEOUT)
	BrokerQueue  time.Duration // waitTimeMillsInTransactionQueue: the broker drops requests that waited longer in its queue of requests
	Slack        time.Duration // for clocks and scheduling

	// The stages of a request, in their order.
	UndecidedWithin time.Duration // a repeated request waits for the outcome of the one before
	RouteWithin     time.Duration // a queue is found for a topic that is not known yet
	RefreshWithin   time.Duration // a topic's queues are looked at again
	RefreshAfter    time.Duration // age of an attempt from which on its queue is looked at again before the message is made visible
	AnswerWithin    time.Duration // the broker answers a message that is to be stored
	SlowAnswer      time.Duration // a message without an answer counts against its broker
	TakeBackWithin  time.Duration // the broker answers the rollback of a half message that it has not stored as it should
	HalfTries       int           // half messages tried for one request, and tries of a message that was certainly not sent
	SlowHalf        time.Duration // half messages have taken so long that a kind with a fallback tries no more
	BusyPause       time.Duration // the longest first pause before a busy broker is asked again; it doubles
	BusyPauses      int           // how often a busy broker is waited for
	LocalLeast      time.Duration // the bounds of a kind's timeout
	LocalMost       time.Duration
	LocalDefault    time.Duration // the timeout of a kind that sets none
	LocalRuns       int           // how often a local transaction is run at most, on serialization failures and deadlocks
	RerunPause      time.Duration // half of the longest pause before the second run; it doubles
	HangWithin      time.Duration // after a kind's timeout, the database server is given up
	ConfirmWithin   time.Duration // standbys confirm what was read
	SettleWithin    time.Duration // an unknown outcome is found out before the answer is "unknown"
	HeadWithin      time.Duration // the earlier messages of an ordered one's line become visible
	EndWithin       time.Duration // the broker answers END_TRANSACTION
	EndPause        time.Duration // before an END_TRANSACTION of a half message that the broker cannot read yet is repeated; it doubles
	EndPauseMost    time.Duration
	AbortWithin     time.Duration // the broker answers a rollback
	LeaseWithin     time.Duration // a request extends a lease, or gives it back

	// Messages without a transaction.
	SettingsWithin time.Duration // a broker tells a topic's settings
	AsyncWithin    time.Duration // a message of mode async is tried, from its request on

	// HTTP.
	HeaderWithin time.Duration // a request's header arrives
	BodyWithin   time.Duration // its body arrives
	AnswerSlack  time.Duration // an answer is written
	ReadyWithin  time.Duration // all checks of /readyz
	IdleWithin   time.Duration // a connection without a request is kept

	// PostgreSQL.
	StatementWithin   time.Duration // one statement on the service's own tables
	ConnectWithin     time.Duration
	PingAfter         time.Duration // age of a connection's last use from which on it is asked for a sign of life
	PingWithin        time.Duration
	IdleInTransaction time.Duration // an open transaction may do nothing
	FenceWithin       time.Duration // a fence waits for the local transaction that holds the id's key
	ConfirmWrite      time.Duration // one write that asks standbys for a confirmation

	// The connections to brokers and name servers.
	DialWithin     time.Duration
	ReplyWithin    time.Duration // of calls whose caller sets no limit
	BrokerReplica  time.Duration // slaveTimeout: a broker answers a message although its slave has not confirmed it
	BelieveRoute   time.Duration // age up to which a route is believed where a message depends on it
	AskRouteWithin time.Duration // a name server, or the broker, is asked about one queue

	// The accepted lists of queues.
	AcceptedEvery  time.Duration // each replica reads them
	AcceptedWithin time.Duration // one question about them to the database
	AcceptPause    time.Duration // keys that move are refused at least, until all replicas know the new list

	// Deliveries that no request finishes.
	PollEvery      time.Duration // rows that are due are looked for
	CallWithin     time.Duration // one delivery, or the answer to one check-back
	FirstBackoff   time.Duration // before a delivery that failed is tried again; it doubles
	LongestBackoff time.Duration
	TopicBackoff   time.Duration // the longest pause of a topic on a broker that takes nothing for it
	RecountAfter   time.Duration // the copies of a message that was delivered in another's place are counted

	// Evidence of what earlier holders of a lease have sent.
	ProbeEvery      time.Duration // each broker is asked for a sign of life
	ProbeMargin     time.Duration // the broker's threads come to what they have read
	IndexProbeEvery time.Duration // an index probe is looked for before another one is put behind it
	IndexPatience   time.Duration // an index probe may be in its queue and not in the index
	IndexBlind      time.Duration // a broker's queues are taken to be this far behind its log where it cannot be found out
	IndexWanted     time.Duration // a broker's index is followed after somebody asked
	EvidenceLag     time.Duration // rows of a broker are claimed while what is known of it is not older
	EvidenceWait    time.Duration // a row waits at most until what is known of its broker is looked at again
	EvidenceStuck   time.Duration // rows wait for evidence until that is reported
	ClockSkew       time.Duration // the clocks of broker, database and service may be this far apart
}

// What clients are told to wait before they repeat what was refused (Retry-After). Errors are made in many places that know no
// Timing, so these are constants.
const (
	RetryAfter = 2 * time.Second // a server is away, or a shard key is stuck: long enough for a broker's route to be refreshed
	RetrySoon  = time.Second     // something is full: it has room again when a few requests are over
)

// DefaultTiming holds for brokers and databases with their default settings.
func DefaultTiming() Timing {
	return Timing{
		WriteWithin:  1500 * time.Millisecond, // more than a busy process needs from COMMIT's answer to the socket
		ArriveWithin: 3 * time.Second,         // a lost packet is sent again several times
		BrokerQueue:  3 * time.Second,         // the broker's default
		Slack:        time.Second,

		UndecidedWithin: 2 * time.Second,        // as long as the first request has tried by itself
		RouteWithin:     5 * time.Second,        // a name server that is away, and another one
		RefreshWithin:   500 * time.Millisecond, // a half message is on its way to nowhere, or a lease is running, meanwhile
		RefreshAfter:    time.Second,            // lists in memory are refreshed every few seconds only
		AnswerWithin:    3500 * time.Millisecond,
		SlowAnswer:      time.Second,
		TakeBackWithin:  time.Second,
		HalfTries:       2,
		SlowHalf:        time.Second, // the fallback is there, and the client waits
		BusyPause:       100 * time.Millisecond,
		BusyPauses:      4, // 0.75 s on average, 1.5 s at most: a cold broker takes more by then
		LocalLeast:      time.Millisecond,
		LocalMost:       time.Minute, // a row's key and a connection are held that long
		LocalDefault:    5 * time.Second,
		LocalRuns:       6,
		RerunPause:      4 * time.Millisecond,
		HangWithin:      2 * time.Second, // the server's own statement_timeout comes first where the server lives
		ConfirmWithin:   2 * time.Second,
		SettleWithin:    2 * time.Second, // a connection that broke, and a new one
		HeadWithin:      500 * time.Millisecond,
		EndWithin:       2 * time.Second,
		EndPause:        10 * time.Millisecond,
		EndPauseMost:    160 * time.Millisecond, // transientStorePoolEnable: readable after 200 ms by default
		AbortWithin:     time.Second,            // a check-back rolls back what is not confirmed
		LeaseWithin:     2 * time.Second,        // a lease that is not given back ends by itself

		SettingsWithin: time.Second,
		AsyncWithin:    30 * time.Second,

		HeaderWithin: 5 * time.Second,
		BodyWithin:   30 * time.Second, // the largest body at 1.4 Mbit/s
		AnswerSlack:  10 * time.Second,
		ReadyWithin:  3 * time.Second, // less would be too strict for a database that is only slow
		IdleWithin:   2 * time.Minute,

		StatementWithin:   5 * time.Second,
		ConnectWithin:     3 * time.Second,
		PingAfter:         5 * time.Second, // a connection may have been cut off without a word
		PingWithin:        time.Second,
		IdleInTransaction: time.Minute,
		FenceWithin:       time.Second,
		ConfirmWrite:      5 * time.Second, // its connection may have been lost without a word

		DialWithin:     3 * time.Second,
		ReplyWithin:    5 * time.Second,
		BrokerReplica:  3 * time.Second, // the broker's default
		BelieveRoute:   time.Second,
		AskRouteWithin: 500 * time.Millisecond,

		AcceptedEvery:  2 * time.Second,
		AcceptedWithin: 3 * time.Second,
		AcceptPause:    10 * time.Second,

		PollEvery:      250 * time.Millisecond,
		CallWithin:     3 * time.Second,
		FirstBackoff:   500 * time.Millisecond,
		LongestBackoff: 30 * time.Second,
		TopicBackoff:   time.Minute,
		RecountAfter:   30 * time.Second, // what a network or a stopped process has held back longer is not seen any more

		ProbeEvery:      500 * time.Millisecond,
		ProbeMargin:     200 * time.Millisecond,
		IndexProbeEvery: 5 * time.Second, // it may be lost
		IndexPatience:   5 * time.Second,
		IndexBlind:      30 * time.Second,
		IndexWanted:     10 * time.Second,
		EvidenceLag:     15 * time.Second,
		EvidenceWait:    5 * time.Second,
		EvidenceStuck:   time.Minute,
		ClockSkew:       10 * time.Minute,
	}
}

// Lease is how long a holder has the exclusive right to deliver a row. When it ends, what its holder has sent is executed,
// or dropped, unless the broker was stopped.
func (t Timing) Lease() time.Duration {
	return t.WriteWithin + t.ArriveWithin + t.BrokerQueue + t.Slack
}

// Quiet is how long before the end of a lease the last frame of its holder can have reached the broker.
func (t Timing) Quiet() time.Duration { return t.BrokerQueue + t.Slack }

// Settled is how long after a broker's sign of life all is executed, or dropped, that had reached it before it was asked.
func (t Timing) Settled() time.Duration { return t.BrokerQueue + t.ProbeMargin }

// BusyPausesMost is how long a busy broker is waited for, all pauses together.
func (t Timing) BusyPausesMost() time.Duration { return doubled(t.BusyPause, t.BusyPauses) }

// Busy returns how long to wait before the next try at a broker that was busy so many times before. ok is false when it was
// waited for often enough.
func (t *Timing) Busy(before int) (pause time.Duration, ok bool) {
	if before >= t.BusyPauses {
		return 0, false
	}
	return rand.N(t.BusyPause << before), true
}

// RerunPausesMost is how long the pauses between the runs of a local transaction are together.
func (t Timing) RerunPausesMost() time.Duration { return doubled(2*t.RerunPause, t.LocalRuns-1) }

// doubled is the sum of n pauses, of which each is twice as long as the one before.
func doubled(first time.Duration, n int) time.Duration { return first * (1<<n - 1) }

// Budget is how much time the stages of a request have at most. A stage that ends early leaves its time to the later ones;
// none can take theirs.
type Budget struct {
	Replay  time.Duration // an earlier request with the same id is looked for
	Turn    time.Duration // earlier requests of the same ordered shard key are waited for
	Route   time.Duration // a queue is picked
	Half    time.Duration // a half message is stored, or the message of a request without a transaction
	Runs    time.Duration // the local transaction runs, as often as it has to
	Outcome time.Duration // and its outcome is found out when the database does not tell it
	End     time.Duration // the half message is ended
}

// stages are the times by which the stages of a request have to be over.
type stages struct {
	replay, turn, route, half time.Time
	run                       time.Time // no further run of the local transaction begins that could end later
	end                       time.Time
}

// from returns the times of a request that starts now.
func (b Budget) from(start time.Time) stages {
	var by stages
	by.replay = start.Add(b.Replay)
	by.turn = by.replay.Add(b.Turn)
	by.route = by.turn.Add(b.Route)
	by.half = by.route.Add(b.Half)
	by.run = by.half.Add(b.Runs)
	by.end = by.run.Add(b.Outcome + b.End)
	return by
}

// Total is how long a request takes at most.
func (b Budget) Total() time.Duration {
	return b.Replay + b.Turn + b.Route + b.Half + b.Runs + b.Outcome + b.End
}

// Budget returns the time of a request of the kind. It is made for the worst that can happen at each stage.
func (t Timing) Budget(kind *Kind) Budget {
	b := Budget{
		Replay: t.UndecidedWithin + t.StatementWithin,
		Route:  t.RouteWithin,
		// A connection is waited for as long as a run may take. Each run has the kind's timeout for itself, because a deadlock
		// alone takes PostgreSQL a second to see.
		Runs:    kind.Timeout + time.Duration(t.LocalRuns)*kind.Timeout + t.RerunPausesMost(),
		Outcome: t.HangWithin + t.ConfirmWithin + t.StatementWithin,
		End:     max(t.HeadWithin+t.LeaseWithin+t.RefreshWithin+t.EndWithin+t.LeaseWithin, t.AbortWithin),
	}
	if kind.Ordered {
		b.Turn = kind.Timeout
	}
	if kind.Via == ViaOutbox || kind.Fallback == FallbackOutbox { // the queues that were known last are asked for, where none can be used now
		b.Route += t.AcceptedWithin
	}
	if kind.Via != ViaOutbox {
		b.Half = t.sending()
	}
	return b
}

// sending is for a message that is tried, refused because its queue is gone, and routed again.
func (t Timing) sending() time.Duration {
	return t.BusyPausesMost() + time.Duration(t.HalfTries)*(t.AnswerWithin+t.TakeBackWithin) + t.RefreshWithin
}

// MessageBudget returns the time of a request without a transaction.
func (t Timing) MessageBudget() Budget {
	return Budget{Route: t.RouteWithin + t.SettingsWithin, Half: t.sending()}
}

// Longest is how long a request takes at most, with or without a transaction of one of the kinds.
func (t Timing) Longest(kinds []*Kind) time.Duration {
	longest := t.MessageBudget().Total()
	for _, kind := range kinds {
		longest = max(longest, t.Budget(kind).Total())
	}
	return longest
}

// FollowSlack is how long a request waits for another one with the same id after the other's time is over: one that gives
// up before would call running what is about to be answered.
func (t Timing) FollowSlack() time.Duration { return t.AnswerSlack / 2 }

// AnswerBy is how long after its header an HTTP request has to be answered: its body arrives, and the longest request takes
// its time, or follows one that does.
func (t Timing) AnswerBy(kinds []*Kind) time.Duration {
	return t.BodyWithin + t.Longest(kinds) + t.AnswerSlack
}

// Validate says which durations contradict one another, or the kinds; nil: none does. A service does not start with such.
func (t Timing) Validate(kinds []*Kind) error {
	var wrong []error
	fields := reflect.ValueOf(t)
	for i := range fields.NumField() {
		if fields.Field(i).Int() <= 0 {
			wrong = append(wrong, fmt.Errorf("%s is not positive", fields.Type().Field(i).Name))
		}
	}
	for _, rule := range []struct {
		less, more time.Duration
		why        string
	}{
		{t.WriteWithin + t.CallWithin, t.Lease(), "a delivery ends while its lease lasts"},
		{t.WriteWithin + t.EndWithin, t.Lease(), "a request waits for END_TRANSACTION's reply while its lease lasts"},
		{t.ProbeMargin, t.Slack, "what is settled by a broker's sign of life is settled when a lease ends"},
		{t.BrokerReplica, t.AnswerWithin, "a broker without its slave answers before nobody waits for it"},
		{t.SlowAnswer, t.BrokerReplica, "a broker that waits for its slave is noticed"},
		{t.FenceWithin, min(t.SettleWithin, t.CallWithin), "a fence gives up before who needs it does"},
		{t.ConfirmWithin, t.CallWithin, "a check-back learns that no standby confirms"},
		{t.LeaseWithin, t.StatementWithin, "a request gives up its lease before a statement is given up"},
		{t.Settled() + 2*t.ProbeEvery, t.EvidenceLag, "rows are claimed while evidence comes as it should"},
		{t.LocalDefault, t.LocalMost, "a kind that sets no timeout has one within the bounds"},
		{t.LocalMost, t.IdleInTransaction + t.HangWithin, "no session is ended while its local transaction may run"},
		{t.AcceptedEvery + 2*t.AcceptedWithin, t.AcceptPause, "all replicas know a new list of queues when it is used"},
	} {
		if rule.less >= rule.more {
			wrong = append(wrong, fmt.Errorf("%s is not less than %s, so it is not true that %s", rule.less, rule.more, rule.why))
		}
	}
	for _, kind := range kinds {
		if kind.Timeout < t.LocalLeast || kind.Timeout > t.LocalMost {
			wrong = append(wrong, fmt.Errorf("kind %s: the timeout %s is not between %s and %s", kind.Name, kind.Timeout, t.LocalLeast, t.LocalMost))
		}
	}
	return errors.Join(wrong...)
}
