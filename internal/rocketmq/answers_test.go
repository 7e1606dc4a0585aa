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
	for name, tc := range map[string]struct {
		code    int
		remark  string
		outcome txn.SendOutcome
		reason  txn.SendReason
		field   string
		words   string // a part of them; empty: there are none
	}{
		"compacted topic":     {13, "Required message key is missing", txn.RefusedForGood, txn.ReasonInvalid, "keys", "cleanup.policy=COMPACTION"},
		"size":                {13, "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, msg properties length limit 32KB.", txn.RefusedForGood, txn.ReasonTooLarge, "", "larger than it accepts"},
		"time":                {13, "timer message illegal, the delay time should not be bigger than the max delay 259200000ms; or if set del msg", txn.RefusedForGood, txn.ReasonInvalid, "deliver_at", "timerMaxDelaySec"},
		"illegal, no reason":  {13, "", txn.RefusedForGood, txn.ReasonInvalid, "", "refused the message as illegal"},
		"no timer":            {1, "accurate timer message is not enabled, timerWheelEnable is false", txn.RefusedForGood, txn.ReasonInvalid, "deliver_at", "timerWheelEnable"},
		"busy timer":          {1, "timer message is under flow control, max num limit is 4", txn.Unsent, txn.ReasonBusy, "", ""},
		"large batch":         {1, "java.lang.RuntimeException: message body size exceeded", txn.RefusedForGood, txn.ReasonTooLarge, "", "larger than it accepts"},
		"replicas":            {1, "in-sync replicas not enough", txn.Unsent, txn.ReasonFailed, "", ""},
		"starting":            {1, "broker unable to service, until 2026-01-01", txn.Unsent, txn.ReasonFailed, "", ""},
		"file":                {1, "create mapped file failed, server is busy or broken.", txn.Unsent, txn.ReasonFailed, "", ""},
		"ACL of 4.9":          {1, "org.apache.rocketmq.acl.common.AclException: No default permission for notes", txn.Unsent, txn.ReasonSettings, "", "does not permit writing to topic notes"},
		"failure":             {1, "UNKNOWN_ERROR", txn.MaybeSent, txn.ReasonFailed, "", ""},
		"busy":                {2, "[PC_SYNCHRONIZED]broker busy, start flow control for a while", txn.Unsent, txn.ReasonBusy, "", ""},
		"flow control":        {215, "", txn.Unsent, txn.ReasonBusy, "", ""},
		"disk full":           {14, "service not available now. It may be caused by one of the following reasons: the broker's disk is full", txn.Unsent, txn.ReasonFailed, "", ""},
		"no half messages":    {16, "the broker[127.0.0.1] sending transaction message is forbidden", txn.Unsent, txn.ReasonSettings, "", "rejectTransactionMessage"},
		"not permitted":       {16, "the topic[notes] sending message is forbidden", txn.Unsent, txn.ReasonNoQueue, "", "does not permit writing to topic notes"},
		"no topic":            {17, "topic[notes] not exist, apply first please!", txn.Unsent, txn.ReasonNoQueue, "", "topic notes does not exist"},
		"no queue":            {29, "request queueId[9] is illegal, Producer: 127.0.0.1:1", txn.Unsent, txn.ReasonNoQueue, "", ""},
		"static topic moved":  {501, "notes-1 does not exit in request process of current broker a", txn.Unsent, txn.ReasonNoQueue, "", ""},
		"what nobody knows":   {4711, "", txn.MaybeSent, txn.ReasonFailed, "", ""},
		"lost between others": {-1006, "", txn.MaybeSent, txn.ReasonFailed, "", ""},
	} {
		cause := &remoting.BrokerError{Op: "send", Code: tc.code, Remark: tc.remark}
		got := messageError("notes", cause)
		if got.Outcome != tc.outcome || got.Reason != tc.reason || got.Field != tc.field {
			t.Errorf("%s: got %s for reason %d, field %q; want %s for %d, %q", name, got.Outcome, got.Reason, got.Field, tc.outcome, tc.reason, tc.field)
		}
		if (got.Words == "") != (tc.words == "") || !strings.Contains(got.Words, tc.words) {
			t.Errorf("%s: got the words %q, want %q in them", name, got.Words, tc.words)
		}
		if !errors.Is(got, cause) || got.Answer == "" {
			t.Errorf("%s: %v has lost the broker's answer", name, got)
		}
	}
}
