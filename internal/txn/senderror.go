package txn

import "errors"

// SendOutcome is the outcome of a request to the broker that did not succeed.
type SendOutcome int

// The outcomes of such a request.
const (
	// Unsent: the broker has not executed the request and never will. Sent again, it may succeed.
	Unsent SendOutcome = iota + 1
	// MaybeSent: the broker may have executed the request, or may still do so.
	MaybeSent
	// RefusedForGood: the broker has not executed the request, and refuses it however often it is sent.
	RefusedForGood
)

// String returns the outcome in words, for logs.
func (o SendOutcome) String() string {
	return [...]string{"failed", "not sent", "may be sent", "refused for good"}[o]
}

// SendReason is why a request to the broker did not succeed.
type SendReason int

// The reasons, each with the outcome that it comes with.
const (
	// ReasonUnreachable: not one byte of the request reached the broker, or no name server knows where to send it. Unsent.
	ReasonUnreachable SendReason = iota + 1
	// ReasonSilent: no answer came in time. MaybeSent.
	ReasonSilent
	// ReasonFailed: the broker answered that it failed, or that it stored a message less safely than configured.
	// Unsent, or MaybeSent where the answer leaves that open.
	ReasonFailed
	// ReasonBusy: too much waits at the broker, which takes more in a moment. Unsent.
	ReasonBusy
	// ReasonNoQueue: the topic, or this queue of it, is not there or must not be written. Another queue may take the message.
	// Unsent.
	ReasonNoQueue
	// ReasonSettings: the settings or permissions of the broker or topic exclude requests like this one. Unsent.
	ReasonSettings
	// ReasonSuspended: the request was not tried, because the broker has not stored half messages lately. Unsent.
	ReasonSuspended
	// ReasonHalfGone: the broker does not have the half message that the request names, or not any more. Unsent.
	ReasonHalfGone
	// ReasonUnanswered: a question, which changes nothing, got no answer. Unsent.
	ReasonUnanswered
	// ReasonNotTold: the broker answered a question without telling its state, for example for want of a permission. Unsent.
	ReasonNotTold
	// ReasonInvalid: the broker takes no message of this form. RefusedForGood.
	ReasonInvalid
	// ReasonTooLarge: the broker takes no message of this size. RefusedForGood.
	ReasonTooLarge
)

// The fields of a message that a broker refuses by name.
const (
	FieldKeys      = "keys"
	FieldDeliverAt = "deliver_at"
)

// SendError is the error of a request to the broker: a message, the end of a half message, or a question. The adapter makes
// all of them; Coded turns them into what clients see.
type SendError struct {
	Outcome SendOutcome
	Reason  SendReason
	Field   string // with ReasonInvalid: which of the message's fields is invalid; empty where it is none of them
	Words   string // for everybody, a sentence of its own; empty where outcome and reason say it all
	// Answer is for everybody: RocketMQ's name of the broker's answer, and as much of the broker's remark as holds no address
	// and nothing that was sent. Empty: there was no answer.
	Answer string
	Cause  error // for the log
}

// Error returns all that is known, for the log.
func (e *SendError) Error() string {
	text := e.Words
	if text == "" {
		text = e.Outcome.String()
	}
	if e.Cause != nil {
		text += ": " + e.Cause.Error()
	}
	return text
}

// Unwrap returns the cause.
func (e *SendError) Unwrap() error { return e.Cause }

// Answered says, for everybody, how the broker answered, or that it did not. The text begins with "the broker".
func (e *SendError) Answered() string {
	switch {
	case e.Answer != "":
		return "the broker answered " + e.Answer
	case e.Reason == ReasonSilent:
		return "the broker did not answer in time"
	case e.Reason == ReasonUnreachable:
		return "the broker could not be reached"
	default:
		return "the broker could not be asked"
	}
}

// Invalid returns the error of the field in the message at a place of the request.
func (e *SendError) Invalid(at string) FieldError {
	if e.Field != "" {
		at += "/" + e.Field
	}
	return FieldError{Pointer: at, Message: e.Words}
}

// IsUnsent reports whether err says that a request was not executed, never will be, and may succeed another time.
func IsUnsent(err error) bool { return outcomeOf(err) == Unsent }

// IsMaybeSent reports whether err leaves open whether a request was executed, or still will be.
func IsMaybeSent(err error) bool { return outcomeOf(err) == MaybeSent }

// IsRefusedForGood reports whether err says that the broker never takes the message.
func IsRefusedForGood(err error) bool { return outcomeOf(err) == RefusedForGood }

func outcomeOf(err error) SendOutcome {
	if e, ok := errors.AsType[*SendError](err); ok {
		return e.Outcome
	}
	return 0
}

// ReasonOf returns the reason of the SendError in err's tree, or 0 when there is none.
func ReasonOf(err error) SendReason {
	if e, ok := errors.AsType[*SendError](err); ok {
		return e.Reason
	}
	return 0
}

// IsWorthRepeating reports whether the same message, sent to the same queue again, may be stored. The caller has to know
// whether a second message does harm: after MaybeSent there may be two.
func IsWorthRepeating(err error) bool {
	switch ReasonOf(err) {
	case ReasonUnreachable, ReasonSilent, ReasonFailed, ReasonBusy:
		return true
	default:
		return false
	}
}

// QueueMayBeGone reports whether the broker does not have the queue, or is perhaps gone with it: then the topic's queues may
// have changed. A busy broker has the queue.
func QueueMayBeGone(err error) bool {
	switch ReasonOf(err) {
	case ReasonNoQueue, ReasonUnreachable:
		return true
	case ReasonFailed:
		return IsUnsent(err)
	default:
		return false
	}
}

// WordsOf returns the sentence for everybody that err carries, or "" when it carries none.
func WordsOf(err error) string {
	if e, ok := errors.AsType[*Error](err); ok {
		return e.Detail
	}
	if e, ok := errors.AsType[*SendError](err); ok {
		return e.Words
	}
	return ""
}

// Why says, for everybody, why a message was not delivered: the row says it, and GET. It is empty where there is no error.
func Why(err error) string {
	if err == nil {
		return ""
	}
	if words := WordsOf(err); words != "" {
		return words
	}
	if e, ok := errors.AsType[*SendError](err); ok {
		return e.Answered()
	}
	return "the broker could not be asked"
}

// Coded gives a SendError the code that clients see, and keeps it as the cause; other errors stay as they are. failed says
// what could not be done, for errors that have no sentence of their own.
func Coded(err error, failed string) error {
	if _, coded := errors.AsType[*Error](err); coded {
		return err
	}
	e, ok := errors.AsType[*SendError](err)
	switch {
	case !ok:
		return err
	case e.Reason == ReasonInvalid:
		invalid := Invalid(e.Invalid(""))
		invalid.Cause = err
		return invalid
	case e.Reason == ReasonTooLarge:
		return &Error{Code: CodePayloadTooLarge, Detail: e.Words, Cause: err}
	case e.Words != "":
		return BrokerUnavailable(err, "%s", e.Words)
	default:
		return BrokerUnavailable(err, "%s: %s", failed, e.Answered())
	}
}

// nothingChanged is what clients can rely on before a local transaction has begun.
const nothingChanged = "nothing was changed"

// Undone adds to an unavailable broker or database what its adapter cannot know: that nothing was done yet.
func Undone(err error, undone string) error {
	e, ok := errors.AsType[*Error](err)
	if !ok || e.Code != CodeBrokerUnavailable && e.Code != CodeDatabaseUnavailable {
		return err
	}
	told := *e
	told.Detail += "; " + undone
	return &told
}
