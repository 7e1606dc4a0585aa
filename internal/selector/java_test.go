package selector

import (
	"bytes"
	"context"
	"encoding/binary"
	"io"
	"math"
	"math/rand/v2"
	"os"
	"os/exec"
	"strings"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/txn"
)

// javaKeys is how many keys are compared with Java.
const javaKeys = 15_000

type javaCase struct {
	key    string
	queues int
}

type javaAnswer struct {
	Hash, Index int32
}

// "polygenelubricants" is the best known string whose hash is Integer.MIN_VALUE, which has no positive counterpart.
var knownKeys = []string{
	"", "a", "customer-1", "polygenelubricants", "GydZG_", "DESIGNING WORKHOUSES", "ä", "Ünïcödé", "東京", "🚚", "👩‍👩‍👧‍👦", "\U00010000", "\U0010FFFF",
	"\uD7FF", "\uE000", "\uFFFD", "\uFFFF", "\x00", "\x7f", "\u0080", "\u07ff", "\u0800", strings.Repeat("z", 255), strings.Repeat("🚚", 255),
}

func TestJavaHashEqualsJava(t *testing.T) {
	cases := javaCases(javaKeys)
	compareWithJava(t, cases, askJava(t, cases, "testdata/JavaHash.java"))
}

func TestHashCodeOfMinValue(t *testing.T) {
	if got := hashCode("polygenelubricants"); got != math.MinInt32 {
		t.Errorf("hashCode: got %d, want %d", got, math.MinInt32)
	}
	for n := 1; n <= 64; n++ {
		if got, want := javaIndex(math.MinInt32, n), int((int64(1)<<31)%int64(n)); got != want {
			t.Errorf("javaIndex(MIN_VALUE, %d): got %d, want %d", n, got, want)
		}
	}
}

// Bytes that are not UTF-8 are no Java string. Each decoder replaces them in its own way, and would send the message
// elsewhere.
func TestJavaHashRefusesInvalidUTF8(t *testing.T) {
	for _, key := range []string{"\xff", "abc\xc3", "\xed\xa0\x80", "\xf4\x90\x80\x80", "\xc0\x80"} {
		_, err := mustNew(t, TypeJavaHash).Select(onBroker("broker-a", 4), txn.SelectorInput{ShardKey: key})
		e, ok := err.(*txn.Error) //nolint:errorlint // Select promises an *Error
		if !ok || e.Code != txn.CodeInvalidRequest || len(e.Fields) != 1 || e.Fields[0].Pointer != "/shard_key" {
			t.Errorf("%q: got %v, want invalid_request for /shard_key", key, err)
		}
	}
}

// javaCases returns n keys of all lengths and scripts with 1 to 64 queues, the same in every run.
func javaCases(n int) []javaCase {
	rnd := rand.New(rand.NewPCG(1, 2))
	cases := make([]javaCase, 0, n)
	for queues := 1; queues <= 64; queues++ {
		for _, key := range knownKeys {
			cases = append(cases, javaCase{key, queues})
		}
	}
	for len(cases) < n {
		cases = append(cases, javaCase{randomKey(rnd), 1 + rnd.IntN(64)})
	}
	return cases
}

// alphabets are ranges of code points; the last ones need surrogate pairs in Java.
var alphabets = [][2]rune{{'0', '9'}, {'a', 'z'}, {0, 0x7f}, {0x80, 0x7ff}, {0x800, 0xd7ff}, {0xe000, 0xffff}, {0x1f300, 0x1faff}, {0x10000, 0x10ffff}}

func randomKey(rnd *rand.Rand) string {
	mixed := rnd.IntN(2) == 0
	alphabet := alphabets[rnd.IntN(len(alphabets))]
	var key strings.Builder
	for range rnd.IntN(40) {
		if mixed {
			alphabet = alphabets[rnd.IntN(len(alphabets))]
		}
		key.WriteRune(alphabet[0] + rnd.Int32N(alphabet[1]-alphabet[0]+1))
	}
	return key.String()
}

// askJava runs the program in the Java runtime: a single source file, compiled in memory.
func askJava(t *testing.T, cases []javaCase, args ...string) []javaAnswer {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Minute)
	defer cancel()
	cmd := exec.CommandContext(ctx, "java", args...)
	cmd.Stdin, cmd.Stderr = encodeCases(cases), os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("running java (17 or later is needed): %v", err)
	}
	answers := make([]javaAnswer, len(cases))
	reader := bytes.NewReader(out)
	if err := binary.Read(reader, binary.BigEndian, answers); err != nil || reader.Len() > 0 {
		t.Fatalf("reading %d answers of Java: %v, %d bytes left", len(cases), err, reader.Len())
	}
	return answers
}

func encodeCases(cases []javaCase) io.Reader {
	in := binary.BigEndian.AppendUint32(nil, uint32(len(cases)))
	for _, c := range cases {
		in = binary.BigEndian.AppendUint32(in, uint32(len(c.key)))
		in = append(in, c.key...)
		in = binary.BigEndian.AppendUint32(in, uint32(c.queues))
	}
	return bytes.NewReader(in)
}

// compareWithJava also checks that the keys reach the places where implementations differ.
func compareWithJava(t *testing.T, cases []javaCase, answers []javaAnswer) {
	t.Helper()
	s := mustNew(t, TypeJavaHash)
	var wrong, negative, minValue, wide int
	for i, c := range cases {
		want := answers[i]
		route, err := s.Select(onBroker("broker-a", c.queues), txn.SelectorInput{ShardKey: c.key})
		if err != nil || hashCode(c.key) != want.Hash || route.Queue.ID != int(want.Index) {
			t.Errorf("%q over %d queues: got hash %d and queue %v (%v), Java says %d and %d",
				c.key, c.queues, hashCode(c.key), route.Queue, err, want.Hash, want.Index)
			if wrong++; wrong == 10 {
				t.FailNow()
			}
		}
		if want.Hash < 0 {
			negative++
		}
		if want.Hash == math.MinInt32 {
			minValue++
		}
		if strings.ContainsFunc(c.key, func(r rune) bool { return r > 0xFFFF }) {
			wide++
		}
	}
	t.Logf("%d keys: %d negative hash codes, %d of MIN_VALUE, %d with surrogate pairs", len(cases), negative, minValue, wide)
	if negative < len(cases)/4 || minValue == 0 || wide < len(cases)/8 {
		t.Errorf("the keys do not cover enough")
	}
}
