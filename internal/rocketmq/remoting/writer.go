package remoting

import (
	"errors"
	"fmt"
	"os"
	"runtime"
	"time"
)

// largestSpare is the largest buffer that a connection reuses for its next batch.
const largestSpare = 1 << 20

// batch is a run of whole frames, ready to be written at once.
type batch struct {
	buf     []byte
	frames  []queuedFrame
	limited int  // frames with a writeBefore
	partial bool // part of the first frame has been written
}

// queuedFrame is one frame of a batch; it starts where the one before ends.
type queuedFrame struct {
	end         int
	opaque      int32
	answered    bool
	gone        bool // its call is gone
	writeBefore time.Time
}

// add encodes a frame with w, whose buffer it borrows for that.
func (b *batch) add(w *fieldWriter, req *request, f queuedFrame) error {
	w.buf = b.buf
	err := appendFrame(w, f.opaque, req)
	b.buf, w.buf = w.buf, nil
	if err != nil {
		return err
	}
	f.end = len(b.buf)
	b.frames = append(b.frames, f)
	if !f.writeBefore.IsZero() {
		b.limited++
	}
	return nil
}

// filter removes the frames that retain refuses, and moves the bytes of the others together.
func (b *batch) filter(retain func(f *queuedFrame) bool) {
	kept, size, start := b.frames[:0], 0, 0
	for _, f := range b.frames {
		end := f.end
		if retain(&f) {
			size += copy(b.buf[size:], b.buf[start:end])
			f.end = size
			kept = append(kept, f)
		} else if !f.writeBefore.IsZero() {
			b.limited--
		}
		start = end
	}
	b.frames, b.buf = kept, b.buf[:size]
}

// consume removes the first n bytes, which have been written.
func (b *batch) consume(n int) {
	whole, done := 0, 0
	for whole < len(b.frames) && b.frames[whole].end <= n {
		done = b.frames[whole].end
		if !b.frames[whole].writeBefore.IsZero() {
			b.limited--
		}
		whole++
	}
	if whole > 0 {
		b.partial = false
	}
	b.partial = b.partial || n > done
	b.frames = b.frames[whole:]
	for i := range b.frames {
		b.frames[i].end -= n
	}
	b.buf = b.buf[n:]
}

// deadline returns the earliest writeBefore, at most limit.
func (b *batch) deadline(limit time.Time) time.Time {
	if b.limited == 0 {
		return limit
	}
	for i := range b.frames {
		if at := b.frames[i].writeBefore; !at.IsZero() && at.Before(limit) {
			limit = at
		}
	}
	return limit
}

func (c *conn) writeLoop() {
	var spare batch
	for {
		b, ok := c.nextBatch(spare)
		if !ok {
			return
		}
		spare = batch{buf: b.buf[:0], frames: b.frames[:0]}
		if cap(spare.buf) > largestSpare {
			spare = batch{}
		}
		if err := c.write(&b); err != nil {
			c.failUnwritten(&b, err)
			c.fail(fmt.Errorf("writing: %w", err))
			return
		}
	}
}

// nextBatch waits for frames to be written, and takes all of them. From here on their calls count as sent.
func (c *conn) nextBatch(spare batch) (b batch, ok bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for len(c.queue.frames) == 0 && c.err == nil {
		c.wake.Wait()
	}
	// Callers that are about to add a frame come first, so that their frames share the system call, here and at the
	// broker.
	c.mu.Unlock()
	runtime.Gosched()
	c.mu.Lock()
	if c.err != nil {
		return batch{}, false
	}
	b, c.queue = c.queue, spare
	gone := 0
	for i := range b.frames {
		f := &b.frames[i]
		if !f.answered {
			continue
		}
		if ca := c.pending[f.opaque]; ca != nil {
			ca.taken = true
		} else {
			f.gone = true
			gone++
		}
	}
	if gone > 0 {
		b.filter(func(f *queuedFrame) bool { return !f.gone })
	}
	return b, true
}

// write writes the batch. It takes frames out again whose time passes while the socket takes no bytes. After an error,
// b has the frames that were not written whole.
func (c *conn) write(b *batch) error {
	limit := time.Now().Add(c.opts.writeTimeout)
	for {
		if err := c.dropLate(b); err != nil || len(b.frames) == 0 {
			return err
		}
		if err := c.socket.SetWriteDeadline(b.deadline(limit)); err != nil {
			return err
		}
		frames := len(b.frames)
		n, err := c.socket.Write(b.buf)
		b.consume(n)
		c.opts.counters.writes.Add(1)
		c.opts.counters.framesWritten.Add(int64(frames - len(b.frames)))
		if err == nil {
			return nil
		}
		if !errors.Is(err, os.ErrDeadlineExceeded) || !time.Now().Before(limit) {
			return err
		}
	}
}

// dropLate takes out the frames whose writeBefore has passed. If a frame is half written, only the end of the
// connection can stop the rest of it.
func (c *conn) dropLate(b *batch) error {
	if b.limited == 0 {
		return nil
	}
	now := time.Now()
	late := func(f *queuedFrame) bool { return !f.writeBefore.IsZero() && !now.Before(f.writeBefore) }
	if b.partial && late(&b.frames[0]) {
		return ErrWriteBefore
	}
	anyLate := false
	for i := range b.frames {
		anyLate = anyLate || late(&b.frames[i])
	}
	if !anyLate {
		return nil
	}
	b.filter(func(f *queuedFrame) bool {
		if !late(f) {
			return true
		}
		c.notSent(f, ErrWriteBefore)
		return false
	})
	return nil
}

// failUnwritten fails the calls of frames of which no byte was written. A frame that was partly written is left to
// fail, because it counts as possibly sent.
func (c *conn) failUnwritten(b *batch, cause error) {
	frames := b.frames
	if b.partial {
		frames = frames[1:]
	}
	for i := range frames {
		c.notSent(&frames[i], fmt.Errorf("writing: %w", cause))
	}
}

func (c *conn) notSent(f *queuedFrame, cause error) {
	if !f.answered {
		return
	}
	if ca := c.take(f.opaque); ca != nil {
		ca.fail(ErrNotSent, cause)
	}
}
