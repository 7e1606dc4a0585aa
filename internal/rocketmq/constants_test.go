package rocketmq_test

import (
	"archive/zip"
	"bufio"
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/txsvc/txsvc/internal/txn"
)

// TestPropertiesOfEachVersion: no name that MessageConst of any version has can be given as a property.
func TestPropertiesOfEachVersion(t *testing.T) {
	t.Parallel()
	// Constants of that class which are no names of properties: a separator, types of index entries, engines of the timer.
	others := []string{" ", "K", "U", "T", "R", "F"}
	versions := []string{"4.9.7", "5.1.4", "5.3.3", "5.4.0", "5.5.0"}
	dir := copyJars(t, "rocketmq-common", versions)
	for _, version := range versions {
		names := stringConstants(t, filepath.Join(dir, "rocketmq-common-"+version+".jar"), "org/apache/rocketmq/common/message/MessageConst.class")
		if len(names) < 35 || !slices.Contains(names, "UNIQ_KEY") {
			t.Fatalf("%s has the constants %q", version, names)
		}
		for _, name := range names {
			labels := txn.Labels{Properties: map[string]string{name: "1"}}
			if !slices.Contains(others, name) && len(labels.Check("", "k")) == 0 {
				t.Errorf("%s of version %s is accepted as a user's property", name, version)
			}
		}
	}
}

// copyJars has Maven copy an artifact of RocketMQ in each of the versions.
func copyJars(t *testing.T, artifact string, versions []string) string {
	t.Helper()
	dir := t.TempDir()
	var items strings.Builder
	for _, version := range versions {
		fmt.Fprintf(&items, "<artifactItem><groupId>org.apache.rocketmq</groupId><artifactId>%s</artifactId><version>%s</version></artifactItem>", artifact, version)
	}
	pom := `<project xmlns="http://maven.apache.org/POM/4.0.0"><modelVersion>4.0.0</modelVersion>
<groupId>txsvc</groupId><artifactId>constants</artifactId><version>1</version><packaging>pom</packaging><build><plugins><plugin>
<groupId>org.apache.maven.plugins</groupId><artifactId>maven-dependency-plugin</artifactId><version>3.8.1</version>
<configuration><artifactItems>` + items.String() + `</artifactItems></configuration></plugin></plugins></build></project>`
	file := filepath.Join(dir, "pom.xml")
	if err := os.WriteFile(file, []byte(pom), 0o600); err != nil {
		t.Fatal(err)
	}
	out, err := exec.CommandContext(t.Context(), "mvn", "-q", "-B", "-f", file, "dependency:copy", "-DoutputDirectory="+dir).CombinedOutput()
	if err != nil {
		t.Fatalf("fetching %s: %v\n%s", artifact, err, out)
	}
	return dir
}

// stringConstants returns what the constant fields of a class in a jar are worth, by the class file's pool (JVMS, 4.4): the
// strings there, those that code uses among them.
func stringConstants(t *testing.T, jar, class string) []string {
	t.Helper()
	archive, err := zip.OpenReader(jar)
	if err != nil {
		t.Fatal(err)
	}
	defer archive.Close()
	file, err := archive.Open(class)
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	r := bufio.NewReader(file)
	u16 := func() int {
		var b [2]byte
		if _, err := io.ReadFull(r, b[:]); err != nil {
			t.Fatalf("%s: %v", class, err)
		}
		return int(binary.BigEndian.Uint16(b[:]))
	}
	_, _ = r.Discard(8) // magic and version
	texts, used := make(map[int]string), make(map[int]bool)
	for i, n := 1, u16(); i < n; i++ {
		tag, _ := r.ReadByte()
		switch tag {
		case 1: // Utf8
			text := make([]byte, u16())
			if _, err := io.ReadFull(r, text); err != nil {
				t.Fatalf("%s: %v", class, err)
			}
			texts[i] = string(text)
		case 8: // String
			used[u16()] = true
		case 7, 16, 19, 20: // Class, MethodType, Module, Package
			u16()
		case 15: // MethodHandle
			_, _ = r.Discard(3)
		case 5, 6: // Long, Double: they take two places
			_, _ = r.Discard(8)
			i++
		case 3, 4, 9, 10, 11, 12, 17, 18: // numbers, members, dynamic ones
			_, _ = r.Discard(4)
		default:
			t.Fatalf("%s: the constant %d has the unknown tag %d", class, i, tag)
		}
	}
	var list []string
	for at := range used {
		list = append(list, texts[at])
	}
	slices.Sort(list)
	return list
}
