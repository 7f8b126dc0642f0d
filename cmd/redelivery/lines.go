package main

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strings"
)

// lines is a file of letters. The first write opens it, so a purge that writes nothing creates no file, and never
// removes the file of another purge. That write also cuts off an incomplete last letter, which an interrupted purge
// wrote only in part and did not acknowledge. No other purge of the topic writes at the same time.
type lines struct {
	name string
	file *os.File // nil before the first write
}

func (l *lines) Write(p []byte) (int, error) {
	if l.file == nil {
		file, err := os.OpenFile(l.name, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o600)
		if err != nil {
			return 0, err
		}
		if err := cut(file); err != nil {
			return 0, errors.Join(err, file.Close())
		}
		l.file = file
	}
	return l.file.Write(p)
}

// Sync makes the letters that were written durable.
func (l *lines) Sync() error {
	if l.file == nil {
		return nil
	}
	return l.file.Sync()
}

func (l *lines) close() {
	if l.file != nil {
		_ = l.file.Close() // Sync has reported errors
	}
}

func cut(to *os.File) error {
	info, err := to.Stat()
	if err != nil || !info.Mode().IsRegular() {
		return err
	}
	file, err := os.Open(to.Name()) // to is open for writing only
	if err != nil {
		return err
	}
	defer file.Close()
	end := info.Size()
	for buffer := make([]byte, 64<<10); end > 0; {
		block := buffer[:min(end, int64(len(buffer)))]
		from := end - int64(len(block))
		if _, err := file.ReadAt(block, from); err != nil {
			return err
		}
		if i := bytes.LastIndexByte(block, '\n'); i >= 0 {
			end = from + int64(i) + 1
			break
		}
		end = from
	}
	const letter = `{"id":"` // the beginning of each line
	head := make([]byte, min(int64(len(letter)), info.Size()-end))
	if _, err := file.ReadAt(head, end); err != nil {
		return err
	}
	if !strings.HasPrefix(letter, string(head)) {
		return fmt.Errorf("%s does not end with a letter, want the file of an earlier purge, or a new one", to.Name())
	}
	return to.Truncate(end)
}
