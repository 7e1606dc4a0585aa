package devstack_test

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"os"
	osexec "os/exec"
	"os/user"
	"path/filepath"
	"strconv"
	"syscall"
	"testing"
	"time"

	"github.com/txsvc/txsvc/internal/tools/await"
	"github.com/txsvc/txsvc/internal/tools/devstack"
)

// runAs makes this test binary a program that runs a stack until it is killed.
const runAs = "DEVSTACK_TEST_OPTIONS"

type anotherOptions struct{ Dir, CacheDir string }

// report is the output of that program once its stack is ready.
type report struct {
	URL         string
	Nameservers []string
	PIDs        []int
}

func TestMain(m *testing.M) {
	if options := os.Getenv(runAs); options != "" {
		panic(runStack(options)) // it returns errors only
	}
	m.Run()
}

func runStack(options string) error {
	var given anotherOptions
	if err := json.Unmarshal([]byte(options), &given); err != nil {
		return err
	}
	o := fast(given.Dir)
	o.CacheDir = given.CacheDir
	s, err := devstack.Start(context.Background(), o)
	if err != nil {
		return err
	}
	r := report{URL: s.DatabaseURL(), Nameservers: s.Nameservers(),
		PIDs: []int{s.Postgres().PID(), s.Namesrv().PID(), s.Broker(0).PID()}}
	if err := json.NewEncoder(os.Stdout).Encode(r); err != nil {
		return err
	}
	select {} // until killed
}

// another is a process that runs a stack.
type another struct {
	report
	cmd *osexec.Cmd
}

func startAnother(t *testing.T, binary string, o anotherOptions, as *syscall.Credential) *another {
	t.Helper()
	options, err := json.Marshal(o)
	if err != nil {
		t.Fatal(err)
	}
	cmd := osexec.Command(binary)
	cmd.Env = append(os.Environ(), runAs+"="+string(options))
	cmd.Stderr = os.Stderr
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Credential: as}
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	a := &another{cmd: cmd}
	t.Cleanup(func() {
		a.kill()
		a.awaitEnd(t, o.Dir) // before the directory is removed
	})
	line, err := bufio.NewReader(out).ReadBytes('\n')
	if err != nil {
		t.Fatalf("the other process has not started its stack: %v", err)
	}
	if err := json.Unmarshal(line, &a.report); err != nil {
		t.Fatal(err)
	}
	return a
}

// kill sends SIGKILL to the process, and nothing to its children.
func (a *another) kill() {
	_ = a.cmd.Process.Kill()
	_ = a.cmd.Wait()
}

// pauseAll stops all processes of the stack, also PostgreSQL's children.
func (a *another) pauseAll(t *testing.T) {
	t.Helper()
	for _, pid := range a.PIDs {
		if err := syscall.Kill(pid, syscall.SIGSTOP); err != nil {
			t.Fatal(err)
		}
	}
	children := devstack.ChildrenOf(a.PIDs[0]) // the postmaster comes first, so that it starts no more
	if len(children) < 3 {
		t.Fatalf("got PostgreSQL's processes %v, want several", children)
	}
	for _, pid := range children {
		_ = syscall.Kill(pid, syscall.SIGSTOP) // a session may have ended just now
	}
	a.PIDs = append(a.PIDs, children...)
}

func (a *another) awaitEnd(t *testing.T, dir string) {
	t.Helper()
	for _, pid := range a.PIDs {
		await.True(t, 20*time.Second, fmt.Sprintf("process %d is gone", pid), func() bool { return !devstack.Lives(pid) })
	}
	await.True(t, 30*time.Second, "nothing of the directory runs", func() bool { return len(processesIn(t, dir)) == 0 })
}

// SIGKILL of the process that runs a stack ends all of its children, also paused ones. A start right after it waits for
// them and finds all committed rows.
func TestKilledParentLeavesNothing(t *testing.T) {
	t.Parallel()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	o := anotherOptions{Dir: tempDir(t)}
	first := startAnother(t, self, o, nil)
	exec(t, first.URL, "create table kept as select 42 as n")
	first.pauseAll(t)
	first.kill()
	first.awaitEnd(t, o.Dir)

	second := startAnother(t, self, o, nil)
	second.kill()
	again := fast(o.Dir)
	again.DatabaseOnly = true
	third := startStack(t, again) // at once, while the killed processes are still ending
	if got := mustQuery[int](t, third.DatabaseURL(), "select n from kept"); got != 42 {
		t.Errorf("got %d, want 42", got)
	}
	if third.DatabaseURL() != first.URL {
		t.Errorf("got %s, want %s as at first", third.DatabaseURL(), first.URL)
	}
	for _, pid := range second.PIDs {
		if devstack.Lives(pid) {
			t.Errorf("process %d of the killed run is alive", pid)
		}
	}
}

// As root, PostgreSQL runs as another user, also in a directory that this user cannot enter. Its cluster is removed
// when the directory is gone.
func TestRootInAPrivateDirectory(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("not root: the stack runs as ourselves, which the other tests show")
		return
	}
	private := tempDir(t) // 0700
	o := fast(filepath.Join(private, "state"))
	o.DatabaseOnly = true
	s := startStack(t, o)
	info, err := os.Stat(fmt.Sprintf("/proc/%d", s.Postgres().PID()))
	if err != nil {
		t.Fatal(err)
	}
	if uid := info.Sys().(*syscall.Stat_t).Uid; uid == 0 {
		t.Error("PostgreSQL runs as root")
	}
	home, err := os.Readlink(filepath.Join(o.Dir, "postgres"))
	if err != nil {
		t.Fatal(err)
	}
	if mode := modeOf(t, private); mode != 0o700 {
		t.Errorf("got mode %o of a directory that is not ours, want 700 as before", mode)
	}
	exec(t, s.DatabaseURL(), "create table kept as select 42 as n")
	s.Kill()
	moved := filepath.Join(private, "moved")
	if err := os.Rename(o.Dir, moved); err != nil {
		t.Fatal(err)
	}
	o.Dir = moved
	s = startStack(t, o)
	devstack.RemoveAbandoned() // must notice that it was moved
	if got := mustQuery[int](t, s.DatabaseURL(), "select n from kept"); got != 42 {
		t.Errorf("got %d, want 42", got)
	}
	s.Kill()
	if err := os.RemoveAll(o.Dir); err != nil {
		t.Fatal(err)
	}
	devstack.RemoveAbandoned()
	if _, err := os.Stat(home); !os.IsNotExist(err) {
		t.Errorf("%s: got %v, want it removed once its stack's directory is gone", home, err)
	}
}

func modeOf(t *testing.T, path string) os.FileMode {
	t.Helper()
	info, err := os.Stat(path)
	if err != nil {
		t.Fatal(err)
	}
	return info.Mode().Perm()
}

// Root is the special case, so this test shows a run of an unprivileged user even when the tests run as root.
func TestUnprivileged(t *testing.T) {
	t.Parallel()
	if os.Geteuid() != 0 {
		t.Log("not root: all tests show it")
		return
	}
	nobody := credential(t, "nobody")
	dir := tempDir(t)
	if err := os.Chown(dir, int(nobody.Uid), int(nobody.Gid)); err != nil {
		t.Fatal(err)
	}
	cache, err := devstack.InstalledCache(within(t, 2*time.Minute))
	if err != nil {
		t.Fatal(err)
	}
	o := anotherOptions{Dir: filepath.Join(dir, "state"), CacheDir: cache}
	a := startAnother(t, reachableSelf(t, dir), o, nobody)
	if got := mustQuery[int](t, a.URL, "select 1"); got != 1 {
		t.Errorf("got %d, want 1", got)
	}
	a.kill()
	a.awaitEnd(t, o.Dir)
}

func credential(t *testing.T, name string) *syscall.Credential {
	t.Helper()
	u, err := user.Lookup(name)
	if err != nil {
		t.Fatal(err)
	}
	uid, err := strconv.ParseUint(u.Uid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	gid, err := strconv.ParseUint(u.Gid, 10, 32)
	if err != nil {
		t.Fatal(err)
	}
	return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}
}

// reachableSelf returns a copy of this test binary that every user can run.
func reachableSelf(t *testing.T, dir string) string {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	program, err := os.ReadFile(self)
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(dir, "another")
	if err := os.WriteFile(path, program, 0o755); err != nil {
		t.Fatal(err)
	}
	return path
}
