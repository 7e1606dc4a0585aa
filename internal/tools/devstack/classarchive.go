package devstack

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"regexp"
	"strings"

	"golang.org/x/sync/errgroup"
)

// A class archive is what the JVM maps into memory instead of reading and checking some thousand classes (class data
// sharing). With it a name server and a broker start with half the CPU time: 3 s instead of 6.5 s.
const archiveFile = "classes.jsa"

// classArchives is the directory of the archives in the cache, one for each version of Java, which uses no other's.
func classArchives(cache, javaVersion, version string) string {
	first, _, _ := strings.Cut(javaVersion, "\n")
	name := regexp.MustCompile(`[^0-9A-Za-z.+]+`).ReplaceAllString(first, "-")
	return filepath.Join(cache, "rocketmq-"+version+"-classes-"+name)
}

// archiveOf is the archive's name for a main class.
func archiveOf(main string) string { return main + ".jsa" }

// archiveClasses runs a name server and a broker once, and keeps the archives that their JVMs write when they end. Both end
// in order, which takes 15 s.
func archiveClasses(ctx context.Context, o Options, inst *installation, into string) error {
	home := filepath.Join(into, "run")
	defer os.RemoveAll(home)
	dir, err := openStateDir(ctx, home, o.Progress)
	if err != nil {
		return err
	}
	defer dir.close()
	s := &Stack{opts: o, dir: dir, install: &installation{java: inst.java, classpath: inst.classpath}}
	s.opts.Brokers, s.opts.Slaves = 1, false
	s.opts.JavaOptions = append([]string{"-XX:ArchiveClassesAtExit=" + archiveFile}, o.JavaOptions...)
	if s.ports, err = dir.choosePorts(s.opts); err != nil {
		return err
	}
	s.namesrv = s.newProcess(namesrvSpec(s))
	s.brokers = []*Process{s.newProcess(brokerSpec(s, 0, nil))}
	s.brokers[0].spec.settled = nil // the JVM itself has to end
	defer s.killRocketMQ()
	var starting errgroup.Group
	for _, p := range []*Process{s.namesrv, s.brokers[0]} {
		starting.Go(func() error { return p.Start(ctx) })
	}
	if err := starting.Wait(); err != nil {
		return err
	}
	if err := errors.Join(s.brokers[0].Stop(ctx), s.namesrv.Stop(ctx)); err != nil {
		return err
	}
	return errors.Join(
		os.Rename(filepath.Join(s.namesrv.spec.dir, archiveFile), filepath.Join(into, archiveOf(namesrvMain))),
		os.Rename(filepath.Join(s.brokers[0].spec.dir, archiveFile), filepath.Join(into, archiveOf(brokerMain))),
	)
}

func (s *Stack) killRocketMQ() {
	s.brokers[0].Kill()
	s.namesrv.Kill()
}
