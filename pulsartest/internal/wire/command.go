package wire

import (
	"fmt"

	"google.golang.org/protobuf/encoding/protowire"
)

// Type is the type of a command, which is also its field's number in
// BaseCommand.
type Type int32

// A Command is one of the commands of this package.
type Command interface {
	message
	// Type is the command's type in BaseCommand.
	Type() Type
}

// The commands that the broker reads or writes.
const (
	TypeConnect                     Type = 2
	TypeConnected                   Type = 3
	TypeSubscribe                   Type = 4
	TypeProducer                    Type = 5
	TypeSend                        Type = 6
	TypeSendReceipt                 Type = 7
	TypeSendError                   Type = 8
	TypeMessage                     Type = 9
	TypeAck                         Type = 10
	TypeFlow                        Type = 11
	TypeUnsubscribe                 Type = 12
	TypeSuccess                     Type = 13
	TypeError                       Type = 14
	TypeCloseProducer               Type = 15
	TypeCloseConsumer               Type = 16
	TypeProducerSuccess             Type = 17
	TypePing                        Type = 18
	TypePong                        Type = 19
	TypeRedeliver                   Type = 20
	TypePartitionedMetadata         Type = 21
	TypePartitionedMetadataResponse Type = 22
	TypeLookup                      Type = 23
	TypeLookupResponse              Type = 24
	TypeConsumerStats               Type = 25
	TypeConsumerStatsResponse       Type = 26
	TypeReachedEndOfTopic           Type = 27
	TypeSeek                        Type = 28
	TypeGetLastMessageID            Type = 29
	TypeGetLastMessageIDResponse    Type = 30
	TypeActiveConsumerChange        Type = 31
	TypeGetTopics                   Type = 32
	TypeGetTopicsResponse           Type = 33
	TypeGetSchema                   Type = 34
	TypeGetSchemaResponse           Type = 35
	TypeAuthResponse                Type = 37
	TypeAckResponse                 Type = 38
	TypeGetOrCreateSchema           Type = 39
	TypeGetOrCreateSchemaResponse   Type = 40
	TypeTransactionsConnect         Type = 62
	TypeTransactionsConnectResponse Type = 63
)

// commands has a name, as Pulsar spells it, and a constructor for each type.
var commands = map[Type]struct {
	name string
	make func() Command
}{
	TypeConnect:                     {"CONNECT", func() Command { return new(Connect) }},
	TypeConnected:                   {"CONNECTED", func() Command { return new(Connected) }},
	TypeSubscribe:                   {"SUBSCRIBE", func() Command { return new(Subscribe) }},
	TypeProducer:                    {"PRODUCER", func() Command { return new(Producer) }},
	TypeSend:                        {"SEND", func() Command { return new(Send) }},
	TypeSendReceipt:                 {"SEND_RECEIPT", func() Command { return new(SendReceipt) }},
	TypeSendError:                   {"SEND_ERROR", func() Command { return new(SendError) }},
	TypeMessage:                     {"MESSAGE", func() Command { return new(Message) }},
	TypeAck:                         {"ACK", func() Command { return new(Ack) }},
	TypeFlow:                        {"FLOW", func() Command { return new(Flow) }},
	TypeUnsubscribe:                 {"UNSUBSCRIBE", func() Command { return new(Unsubscribe) }},
	TypeSuccess:                     {"SUCCESS", func() Command { return new(Success) }},
	TypeError:                       {"ERROR", func() Command { return new(Error) }},
	TypeCloseProducer:               {"CLOSE_PRODUCER", func() Command { return new(CloseProducer) }},
	TypeCloseConsumer:               {"CLOSE_CONSUMER", func() Command { return new(CloseConsumer) }},
	TypeProducerSuccess:             {"PRODUCER_SUCCESS", func() Command { return new(ProducerSuccess) }},
	TypePing:                        {"PING", func() Command { return new(Ping) }},
	TypePong:                        {"PONG", func() Command { return new(Pong) }},
	TypeRedeliver:                   {"REDELIVER_UNACKNOWLEDGED_MESSAGES", func() Command { return new(Redeliver) }},
	TypePartitionedMetadata:         {"PARTITIONED_METADATA", func() Command { return new(PartitionedMetadata) }},
	TypePartitionedMetadataResponse: {"PARTITIONED_METADATA_RESPONSE", func() Command { return new(PartitionedMetadataResponse) }},
	TypeLookup:                      {"LOOKUP", func() Command { return new(Lookup) }},
	TypeLookupResponse:              {"LOOKUP_RESPONSE", func() Command { return new(LookupResponse) }},
	TypeConsumerStats:               {"CONSUMER_STATS", func() Command { return new(ConsumerStats) }},
	TypeConsumerStatsResponse:       {"CONSUMER_STATS_RESPONSE", func() Command { return new(ConsumerStatsResponse) }},
	TypeReachedEndOfTopic:           {"REACHED_END_OF_TOPIC", func() Command { return new(ReachedEndOfTopic) }},
	TypeSeek:                        {"SEEK", func() Command { return new(Seek) }},
	TypeGetLastMessageID:            {"GET_LAST_MESSAGE_ID", func() Command { return new(GetLastMessageID) }},
	TypeGetLastMessageIDResponse:    {"GET_LAST_MESSAGE_ID_RESPONSE", func() Command { return new(GetLastMessageIDResponse) }},
	TypeActiveConsumerChange:        {"ACTIVE_CONSUMER_CHANGE", func() Command { return new(ActiveConsumerChange) }},
	TypeGetTopics:                   {"GET_TOPICS_OF_NAMESPACE", func() Command { return new(GetTopics) }},
	TypeGetTopicsResponse:           {"GET_TOPICS_OF_NAMESPACE_RESPONSE", func() Command { return new(GetTopicsResponse) }},
	TypeGetSchema:                   {"GET_SCHEMA", func() Command { return new(GetSchema) }},
	TypeGetSchemaResponse:           {"GET_SCHEMA_RESPONSE", func() Command { return new(GetSchemaResponse) }},
	TypeAuthResponse:                {"AUTH_RESPONSE", func() Command { return new(AuthResponse) }},
	TypeAckResponse:                 {"ACK_RESPONSE", func() Command { return new(AckResponse) }},
	TypeGetOrCreateSchema:           {"GET_OR_CREATE_SCHEMA", func() Command { return new(GetOrCreateSchema) }},
	TypeGetOrCreateSchemaResponse:   {"GET_OR_CREATE_SCHEMA_RESPONSE", func() Command { return new(GetOrCreateSchemaResponse) }},
	TypeTransactionsConnect:         {"TC_CLIENT_CONNECT_REQUEST", func() Command { return new(TransactionsConnect) }},
	TypeTransactionsConnectResponse: {"TC_CLIENT_CONNECT_RESPONSE", func() Command { return new(TransactionsConnectResponse) }},
}

// String is the type's name in Pulsar's protocol.
func (t Type) String() string {
	if c, ok := commands[t]; ok {
		return c.name
	}
	return fmt.Sprintf("COMMAND_%d", int32(t))
}

// appendCommand appends cmd as a BaseCommand.
func appendCommand(out []byte, cmd Command) []byte {
	out = protowire.AppendTag(out, 1, protowire.VarintType)
	out = protowire.AppendVarint(out, uint64(cmd.Type()))
	c := codec{mode: encoding, out: out}
	c.appendMessage(protowire.Number(cmd.Type()), cmd)
	return c.out
}

// decodeCommand reads a BaseCommand.
func decodeCommand(b []byte) (Command, error) {
	var t Type
	var body []byte
	for len(b) > 0 {
		num, typ, n := protowire.ConsumeTag(b)
		if n < 0 {
			return nil, errTruncated
		}
		b = b[n:]
		switch {
		case num == 1 && typ == protowire.VarintType:
			v, n := protowire.ConsumeVarint(b)
			if n < 0 {
				return nil, errTruncated
			}
			t, b = Type(v), b[n:]
		case t != 0 && num == protowire.Number(t) && typ == protowire.BytesType:
			v, n := protowire.ConsumeBytes(b)
			if n < 0 {
				return nil, errTruncated
			}
			body, b = v, b[n:]
		default:
			n := protowire.ConsumeFieldValue(num, typ, b)
			if n < 0 {
				return nil, errTruncated
			}
			b = b[n:]
		}
	}
	c, ok := commands[t]
	if !ok {
		return nil, fmt.Errorf("unknown command %d", int32(t))
	}
	if body == nil {
		return nil, fmt.Errorf("%s without a body", t)
	}
	cmd := c.make()
	if err := unmarshal(body, cmd); err != nil {
		return nil, fmt.Errorf("%s: %w", t, err)
	}
	return cmd, nil
}
