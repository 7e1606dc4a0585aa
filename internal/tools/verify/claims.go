package verify

// judgeAnswers compares each claim about a transaction with its row and its messages. The claims of each answer:
//
//	201, GET committed      the row is committed for good, with this kind, key, topic, tag, queue, message id, route, result and times
//	… "delivered"           the message is visible, in that queue
//	… "replayed": false     this very request has committed
//	… "replayed": true      this request has changed nothing: another has committed before
//	202, GET unknown        nothing; but it will be known
//	422 rejected            rolled back for good, and every later answer says the same
//	422 mismatch            another request with the id was decided before
//	400 404 413 415 503     this very request has changed nothing
//	no connection made      this very request has changed nothing
//	409, 500, other, none   nothing
//	GET not found           nothing was committed before the GET was sent
//
// "Nothing was changed" is about one request, not about the id: a retry may commit. It is false when the row is committed
// and no request is left that can have done it: none that says so, and none that claims nothing.
func (c *checker) judgeAnswers(n uint32, f *fact, t transaction) {
	if f.sent == 0 {
		return
	}
	is := f.flags
	committed := is.has(rowCommitted)
	claims := []struct {
		broken bool
		class  string
		detail string
	}{
		{is.has(saidCommitted) && !committed, FalseCommitted, "an answer said committed"},
		{is.has(rowDiffers), FalseDiffers, "an answer said something else than the row"},
		{is.has(saidRejected) && committed, FalseRejected, "an answer said 422 rejected"},
		{is.has(saidRejected) && !committed && !is.has(rowRejected), FalseNotKept, "an answer said 422 rejected"},
		{committed && f.did == 0 && f.perhaps == 0 && f.open == 0, FalseNothing, "every request was answered that it has changed nothing"},
		{is.has(saidDelivered) && f.copies == 0, FalseDelivered, "an answer said delivered"},
		{is.any(differentAnswer|differentQueue|differentMessage) || is.has(saidCommitted|saidRejected), FalseContradiction, contradiction(is)},
		{f.did > 1, FalseTwice, "more than one answer said committed without \"replayed\""},
		{is.has(goneAfterCommit), FalseGone, "a GET found nothing after an answer had said committed"},
		{is.has(otherExecuted), FalseOther, "another request with the same id was accepted"},
		{is.has(saidMismatch), FalseMismatch, "422 idempotency_mismatch, and no other request had this id"},
		{is.any(rowUnknown|askedUnknown) && !is.any(rowCommitted|rowRejected), FalseUnknown, "the outcome is still unknown"},
		{t.play == playRejected && committed, FalseNotRejected, "the local transaction had to refuse this request"},
		{is.has(saidMalformed), FalseMalformed, "an answer was not what the contract says"},
	}
	for _, claim := range claims {
		if claim.broken {
			c.falseAnswer(n, f, claim.class, claim.detail)
		}
	}
}

// falseAnswer reports a false answer, unless the row or message that it needs may just not have been read.
func (c *checker) falseAnswer(n uint32, f *fact, class, detail string) {
	needsRow := class == FalseCommitted || class == FalseNotKept
	if needsRow && c.rowsOnly && !f.flags.has(rowSeen) || class == FalseDelivered && c.maybe {
		c.unproved.answers++
		return
	}
	c.find(class, n, detail+": "+c.describe(f)+c.detail(n))
}

func contradiction(is flags) string {
	switch {
	case is.has(saidCommitted | saidRejected):
		return "one answer said committed, another rejected"
	case is.has(differentQueue):
		return "two answers name different queues"
	case is.has(differentMessage):
		return "two answers name different message ids"
	default:
		return "two answers differ in result, route, times or the reason of the rejection"
	}
}
