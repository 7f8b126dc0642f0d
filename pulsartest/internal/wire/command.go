package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Type is the number of a command's type, and of the command's field in BaseCommand.
type Type int32

// A Command is a message in a frame.
type Command interface {
	Message
	Type() Type // returned by Register
}

// commands are the registered commands.
var commands = map[Type]registered{}

type registered struct {
	name string
	make func() Command
}

// Register registers a command with its number and its name in Pulsar's BaseCommand. Call it only while a package is
// initialized.
func Register[T any, C interface {
	*T
	Command
}](number Type, name string) Type {
	if have, ok := commands[number]; ok {
		panic(fmt.Sprintf("wire: %s and %s are both command %d", have.name, name, number))
	}
	commands[number] = registered{name, func() Command { return C(new(T)) }}
	return number
}

// Commands returns a new value of each registered command.
func Commands() []Command {
	var all []Command
	for _, r := range commands {
		all = append(all, r.make())
	}
	return all
}

// Known reports whether a command of that name is registered.
func Known(name string) bool {
	for _, r := range commands {
		if r.name == name {
			return true
		}
	}
	return false
}

// String returns the type's name in Pulsar's protocol.
func (t Type) String() string {
	if r, ok := commands[t]; ok {
		return r.name
	}
	return fmt.Sprintf("COMMAND_%d", int32(t))
}

// AppendCommand appends cmd as a BaseCommand.
func AppendCommand(out []byte, cmd Command) []byte {
	out = protowire.AppendTag(out, 1, protowire.VarintType)
	out = protowire.AppendVarint(out, uint64(cmd.Type()))
	c := Codec{mode: encoding, out: out}
	c.appendMessage(protowire.Number(cmd.Type()), cmd)
	return c.out
}

// ParseCommand reads a BaseCommand. Its fields may come in any order.
func ParseCommand(b []byte) (Command, error) {
	t, body, err := split(b)
	if err != nil {
		return nil, err
	}
	r, ok := commands[t]
	if !ok {
		return nil, fmt.Errorf("unknown command %d", int32(t))
	}
	if body == nil {
		return nil, fmt.Errorf("%s without a body", t)
	}
	cmd := r.make()
	if err := unmarshal(body, cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return cmd, nil
}

// split returns a command's type and body. The body is nil if the command has none.
func split(b []byte) (t Type, body []byte, err error) {
	err = eachField(b, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == 1 && typ == protowire.VarintType {
			v, _ := protowire.ConsumeVarint(value)
			t = Type(v)
		}
	})
	if err != nil {
		return 0, nil, err
	}
	err = eachField(b, func(num protowire.Number, typ protowire.Type, value []byte) {
		if num == protowire.Number(t) && typ == protowire.BytesType {
			body, _ = protowire.ConsumeBytes(value)
		}
	})
	return t, body, err
}

// eachField calls f with every field of a message. value is the field without its tag.
func eachField(b []byte, f func(num protowire.Number, typ protowire.Type, value []byte)) error {
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errTruncated
		}
		b = b[n:]
		size := protowire.ConsumeFieldValue(num, typ, b)
		if size < 0 {
			return errTruncated
		}
		f(num, typ, b[:size])
		b = b[size:]
	}
	return nil
}
