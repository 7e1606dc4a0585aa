package rocketmq

import (
	"errors"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/rocketmq/remoting"
	"github.com/txsvc/txsvc/internal/txn"
)

// TestAnswers: what brokers say when they do not accept a message, in their own words, and what is known then.
func TestAnswers(t *testing.T) {
	is := func(want ...error) func(error) bool {
		return func(err error) bool {
			for _, all := range []error{txn.ErrNotSent, txn.ErrReplyMissing, txn.ErrBusy, txn.ErrNoQueue} {
				wanted := false
				for _, w := range want {
					wanted = wanted || w == all //nolint:errorlint // the very one
				}
				if errors.Is(err, all) != wanted {
					return false
				}
			}
			return true
		}
	}
	unavailable := func(text string, queue bool) func(error) bool {
		return func(err error) bool {
			e, ok := errors.AsType[*txn.Error](err)
			return ok && e.Code == txn.CodeBrokerUnavailable && strings.Contains(e.Detail, text) && errors.Is(err, txn.ErrNoQueue) == queue
		}
	}
	for name, tc := range map[string]struct {
		code   int
		remark string
		check  func(error) bool
	}{
		"compacted topic":     {13, "Required message key is missing", wantField("/keys", "cleanup.policy=COMPACTION")},
		"size":                {13, "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, msg properties length limit 32KB.", isCode(txn.CodePayloadTooLarge)},
		"time":                {13, "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del msg", wantField("/deliver_at", "timerMaxDelaySec")},
		"illegal, no reason":  {13, "", wantField("", "refused the message as illegal")},
		"no timer":            {1, "accurate timer message is not enabled, timerWheelEnable is false", wantField("/deliver_at", "timerWheelEnable")},
		"busy timer":          {1, "timer message is under flow control, max num limit is 4", is(txn.ErrNotSent, txn.ErrBusy)},
		"large batch":         {1, "java.lang.RuntimeException: message body size exceeded", isCode(txn.CodePayloadTooLarge)},
		"replicas":            {1, "in-sync replicas not enough", is(txn.ErrNotSent)},
		"starting":            {1, "broker unable to service, until 2026-01-01", is(txn.ErrNotSent)},
		"file":                {1, "create mapped file failed, server is busy or broken.", is(txn.ErrNotSent)},
		"ACL of 4.9":          {1, "org.apache.rocketmq.acl.common.AclException: No default permission for notes", unavailable("does not permit writing to topic notes", false)},
		"failure":             {1, "UNKNOWN_ERROR", is(txn.ErrReplyMissing)},
		"busy":                {2, "[PC_SYNCHRONIZED]broker busy, start flow control for a while", is(txn.ErrNotSent, txn.ErrBusy)},
		"flow control":        {215, "", is(txn.ErrNotSent, txn.ErrBusy)},
		"disk full":           {14, "service not available now. It may be caused by one of the following reasons: the broker's disk is full", is(txn.ErrNotSent)},
		"no half messages":    {16, "the broker[127.0.0.1] sending transaction message is forbidden", unavailable("rejectTransactionMessage", false)},
		"not permitted":       {16, "the topic[notes] sending message is forbidden", unavailable("does not permit writing to topic notes", true)},
		"no topic":            {17, "topic[notes] not exist, apply first please!", unavailable("topic notes does not exist", true)},
		"no queue":            {29, "request queueId[9] is illegal, Producer: 127.0.0.1:1", is(txn.ErrNotSent, txn.ErrNoQueue)},
		"static topic moved":  {501, "notes-1 does not exit in request process of current broker a", is(txn.ErrNotSent, txn.ErrNoQueue)},
		"what nobody knows":   {4711, "", is(txn.ErrReplyMissing)},
		"lost between others": {-1006, "", is(txn.ErrReplyMissing)},
	} {
		err := sendError("notes", &remoting.BrokerError{Op: "send", Code: tc.code, Remark: tc.remark})
		if !tc.check(err) {
			t.Errorf("%s: got %v", name, err)
		}
	}
}
