package rocketmq

import (
	"strings"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// meaning is what is known of a message after a broker's answer, and why.
type meaning struct {
	outcome txn.SendOutcome
	reason  txn.SendReason
}

var (
	maybeStored = meaning{txn.MaybeSent, txn.ReasonFailed} // the broker failed, or gave an answer that nobody knows: it may have stored the message before
	notStored   = meaning{txn.Unsent, txn.ReasonFailed}    // the message can be sent again
	busy        = meaning{txn.Unsent, txn.ReasonBusy}      // the same, after a pause
	queueGone   = meaning{txn.Unsent, txn.ReasonNoQueue}   // the topic, or this queue of it, is not there or must not be written now
	excluded    = meaning{txn.Unsent, txn.ReasonSettings}  // nothing of this sort is taken until somebody changes the broker's settings or permissions
	tooLarge    = meaning{txn.RefusedForGood, txn.ReasonTooLarge}
	invalid     = meaning{txn.RefusedForGood, txn.ReasonInvalid}
)

// saying is one way in which brokers answer. text is for everybody; in it %s stands for the topic.
type saying struct {
	code   int
	remark string // a part of it; empty: whatever it is
	means  meaning
	field  string // the one that is invalid
	text   string
}

const (
	textNoTopic      = "topic %s does not exist"
	textNoRoute      = "no name server tells where topic %s is"
	textNotPermitted = "the broker does not permit writing to topic %s"
	textTooLarge     = "the broker refused the message: payload or properties are larger than it accepts"
	textKeyMissing   = "at least one key is required: the topic is compacted (cleanup.policy=COMPACTION), and RocketMQ keeps the last message of each key"
)

// sayings are the answers of RocketMQ 4.9 to 5.5 to SEND_MESSAGE and SEND_BATCH_MESSAGE (SendMessageProcessor and its base
// class, MessageExtEncoder, AclException, BrokerFastFailure). The first one that fits counts. Where one code has several
// meanings, the remark tells them apart.
var sayings = []saying{
	{remoting.CodeMessageIllegal, "message key is missing", invalid, txn.FieldKeys, textKeyMissing},
	{remoting.CodeMessageIllegal, "timer message illegal", invalid, txn.FieldDeliverAt, "is further ahead than the broker accepts (timerMaxDelaySec)"},
	{remoting.CodeMessageIllegal, "length not matched", tooLarge, "", textTooLarge},
	{remoting.CodeMessageIllegal, "must be less", tooLarge, "", textTooLarge},
	{remoting.CodeMessageIllegal, "", invalid, "", "the broker refused the message as illegal"},

	{remoting.CodeSystemError, "timer message is not enabled", invalid, txn.FieldDeliverAt, "the broker does not deliver at a given time: its timerWheelEnable is off"},
	{remoting.CodeSystemError, "timer message is under flow control", busy, "", ""},
	{remoting.CodeSystemError, "size exceeded", tooLarge, "", "the broker refused the batch: it is larger than it accepts (maxMessageSize)"},
	{remoting.CodeSystemError, "in-sync replicas not enough", notStored, "", ""},
	{remoting.CodeSystemError, "broker unable to service", notStored, "", ""},
	{remoting.CodeSystemError, "create mapped file failed", notStored, "", ""},
	{remoting.CodeSystemError, "LMQ_CONSUME_QUEUE_NUM_EXCEEDED", notStored, "", ""},
	{remoting.CodeSystemError, "AclException", excluded, "", textNotPermitted},
	{remoting.CodeSystemError, "", maybeStored, "", ""},

	{remoting.CodeSystemBusy, "", busy, "", ""},
	{remoting.CodeFlowControl, "", busy, "", ""},
	{remoting.CodeNotSupported, "", notStored, "", ""},
	{remoting.CodeServiceUnavailable, "", notStored, "", ""},
	{remoting.CodeSlaveNotAvailable, "", notStored, "", ""}, // without a place: else it is a status
	{remoting.CodeNoPermission, "sending transaction message is forbidden", excluded, "", "the broker takes no half messages (rejectTransactionMessage)"},
	{remoting.CodeNoPermission, "", queueGone, "", textNotPermitted},
	{remoting.CodeTopicNotExist, "", queueGone, "", textNoTopic},
	{remoting.CodeInvalidParameter, "", queueGone, "", ""},
	{remoting.CodeNotLeader, "", queueGone, "", ""},
	{remoting.CodeIllegalOperation, "", notStored, "", ""},
	{remoting.CodeGoAway, "", notStored, "", ""},
}

// sayingOf returns the saying of an answer. An answer that is not in the list leaves everything open.
func sayingOf(answer *remoting.BrokerError) saying {
	for _, s := range sayings {
		if s.code == answer.Code && strings.Contains(answer.Remark, s.remark) {
			return s
		}
	}
	return saying{code: answer.Code, means: maybeStored}
}
