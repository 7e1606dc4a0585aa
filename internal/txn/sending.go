package txn

import "time"

// SendRouted sends to the queue of a route, and returns the route that was taken. When the broker does not have that queue, or
// cannot be reached, again says, after the error, which route there is now; the message goes there if its queue is another
// one: once.
func SendRouted(route Route, send func(Route) error, again func(refused error) (Route, error)) (Route, error) {
	err := send(route)
	if !QueueMayBeGone(err) {
		return route, err
	}
	other, routeErr := again(err)
	switch {
	case routeErr != nil:
		return route, routeErr
	case other.Queue == route.Queue:
		return route, err
	}
	return other, send(other)
}

// Send calls send until it succeeds, further tries cannot help, or the time is over. A busy broker is waited for, because a
// cold or loaded one takes more in a moment. After other errors send is called again, HalfTries times in all, where repeat
// allows it.
func (t *Timing) Send(by time.Time, send func() error, repeat func(err error) bool) error {
	for try, busy := 1, 0; ; {
		err := send()
		pause, patient := t.Busy(busy)
		switch {
		case err == nil:
			return nil
		case ReasonOf(err) == ReasonBusy && patient:
			time.Sleep(min(pause, time.Until(by)))
			busy++
		case try < t.HalfTries && repeat(err):
			try++
		default:
			return err
		}
		if !time.Now().Before(by) {
			return err
		}
	}
}
