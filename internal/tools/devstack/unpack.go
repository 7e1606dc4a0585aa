package devstack

import (
	"archive/tar"
	"archive/zip"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"

	"github.com/xi2/xz"
)

// unpackPostgres unpacks the .txz inside the jar into dir, readable by everybody, because the cluster's owner is
// another user when this process is root.
func unpackPostgres(jar, dir string) error {
	archive, err := zip.OpenReader(jar)
	if err != nil {
		return err
	}
	defer archive.Close()
	for _, file := range archive.File {
		if strings.HasSuffix(file.Name, ".txz") {
			return unpackTxz(file, dir)
		}
	}
	return fmt.Errorf("no .txz in %s", jar)
}

func unpackTxz(file *zip.File, dir string) error {
	content, err := file.Open()
	if err != nil {
		return err
	}
	defer content.Close()
	plain, err := xz.NewReader(content, 0)
	if err != nil {
		return err
	}
	root, err := os.OpenRoot(dir) // nothing is written outside of it
	if err != nil {
		return err
	}
	defer root.Close()
	entries := tar.NewReader(plain)
	for {
		entry, err := entries.Next()
		if errors.Is(err, io.EOF) {
			return nil
		}
		if err != nil {
			return err
		}
		if err := unpackEntry(root, entry, entries); err != nil {
			return fmt.Errorf("%s: %w", entry.Name, err)
		}
	}
}

func unpackEntry(root *os.Root, entry *tar.Header, content io.Reader) error {
	name := filepath.Clean(entry.Name)
	if err := root.MkdirAll(filepath.Dir(name), 0o755); err != nil {
		return err
	}
	switch entry.Typeflag {
	case tar.TypeDir:
		return root.MkdirAll(name, 0o755)
	case tar.TypeSymlink:
		return root.Symlink(entry.Linkname, name)
	case tar.TypeReg:
		return unpackFile(root, name, entry.FileInfo().Mode(), content)
	default:
		return fmt.Errorf("unexpected type %q", entry.Typeflag)
	}
}

func unpackFile(root *os.Root, name string, mode os.FileMode, content io.Reader) error {
	mode = 0o644 | mode&0o111
	f, err := root.OpenFile(name, os.O_CREATE|os.O_EXCL|os.O_WRONLY, mode)
	if err != nil {
		return err
	}
	if _, err := io.Copy(f, content); err != nil {
		_ = f.Close()
		return err
	}
	return f.Close()
}
