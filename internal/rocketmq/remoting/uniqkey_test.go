package remoting

import (
	"encoding/binary"
	"encoding/hex"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/devstack/stacktest"
)

func TestUniqKeysAreUnique(t *testing.T) {
	const workers, each = 8, 20_000
	ids := make([][]string, workers)
	var group sync.WaitGroup
	for w := range workers {
		group.Go(func() {
			for range each {
				ids[w] = append(ids[w], UniqKey())
			}
		})
	}
	group.Wait()
	seen := make(map[string]bool, workers*each)
	for _, list := range ids {
		for _, id := range list {
			if len(id) != 32 || strings.ToUpper(id) != id || seen[id] {
				t.Fatalf("got %q, seen before: %t", id, seen[id])
			}
			seen[id] = true
		}
	}
}

func TestUniqKeyAcrossMonths(t *testing.T) {
	g := &uniqKeyGenerator{}
	for _, at := range []time.Time{
		time.Date(2026, 1, 31, 23, 59, 59, 999e6, time.Local), time.Date(2026, 2, 1, 0, 0, 0, 0, time.Local),
		time.Date(2026, 12, 31, 12, 0, 0, 0, time.Local), time.Date(2027, 1, 1, 0, 0, 0, 5e6, time.Local),
		time.Date(2026, 2, 1, 0, 0, 0, 0, time.Local), // the clock was set back
	} {
		raw, err := hex.DecodeString(g.format(at.UnixMilli(), 7))
		if err != nil {
			t.Fatal(err)
		}
		month := time.Date(at.Year(), at.Month(), 1, 0, 0, 0, 0, time.Local)
		got := month.Add(time.Duration(binary.BigEndian.Uint32(raw[10:])) * time.Millisecond)
		if !got.Equal(at) || binary.BigEndian.Uint16(raw[14:]) != 7 {
			t.Errorf("got %v, counter %d; want %v", got, binary.BigEndian.Uint16(raw[14:]), at)
		}
	}
}

// RocketMQ's own class reads address, process and time from the id.
func TestUniqKeyIsReadByJava(t *testing.T) {
	dir := t.TempDir()
	source := `public class Read { public static void main(String[] a) throws Exception {
		System.out.println("READ " + org.apache.rocketmq.common.message.MessageClientIDSetter.getNearlyTimeFromID(a[0]).getTime()
			+ " " + org.apache.rocketmq.common.message.MessageClientIDSetter.getPidFromID(a[0])
			+ " " + org.apache.rocketmq.common.message.MessageClientIDSetter.getIPStrFromID(a[0])); } }`
	if err := os.WriteFile(dir+"/Read.java", []byte(source), 0o600); err != nil {
		t.Fatal(err)
	}
	before := time.Now().UnixMilli()
	id := UniqKey()
	out, err := exec.CommandContext(t.Context(), "java", "-Duser.home="+dir, "-Duser.timezone="+localZone(t),
		"-cp", stacktest.Shared(t).Classpath, dir+"/Read.java", id).CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, line, found := strings.Cut(string(out), "READ ")
	words := strings.Fields(line)
	if !found || len(words) != 3 {
		t.Fatalf("got %s", out)
	}
	ms, err := strconv.ParseInt(words[0], 10, 64)
	if err != nil || ms < before || ms > time.Now().UnixMilli() {
		t.Errorf("time: got %d, %v; want %d or a little later", ms, err, before)
	}
	if words[1] != strconv.Itoa(os.Getpid()&0xffff) || words[2] != localIPv4().String() {
		t.Errorf("got process %s at %s, want %d at %s", words[1], words[2], os.Getpid()&0xffff, localIPv4())
	}
}

// localZone is this process' time zone in the form that Java takes.
func localZone(t *testing.T) string {
	t.Helper()
	return "GMT" + time.Now().Format("-07:00")
}
