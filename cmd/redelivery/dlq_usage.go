package main

const dlqUsage = `Usage: redelivery dlq <verb> [flags] [topic]

Looks into dead letter topics, and replays, exports, purges and imports letters.

  redelivery dlq                         on a terminal: asks for all it needs
  redelivery dlq list public/default     topics of a namespace and their backlog
  redelivery dlq groups orders-sub-DLQ   letters by cause
  redelivery dlq peek orders-sub-DLQ     letters; no cursor is moved
  redelivery dlq replay orders-sub-DLQ   what a replay would do; -yes does it
  redelivery dlq export orders-sub-DLQ   letters as lines of JSON
  redelivery dlq purge orders-sub-DLQ    what a purge would do; -yes does it
  redelivery dlq import orders-sub-DLQ   bring back what export or purge wrote
  redelivery dlq unsubscribe orders-sub-DLQ   keep no letters for the tool

Which letters, for groups, peek, replay, export and purge:
  -group a1b2c3d4e5                 of this group, or one of several -group
  -id 12:3:0, -key customer-7       this letter, those of a key; or several
  -property name=value              with this property, and all of several
  -after 2h, -before 2006-01-02     that died so long ago, or at a time
  -subscription redelivery          the tool's own, which replay and purge
                                    acknowledge on; unsubscribe removes it
list:
  -all                              topics of other names too, if their first
                                    message is a dead letter
peek:
  -n 10                             how many; 0 for all
  -payload                          payloads too, decoded by their schema
replay:
  -to retry                         the subscription's retry topic; or origin,
                                    where other subscriptions get them too
  -others                           do not ask about these
  -topic name                       where they go instead
  -routing same                     to the partition that a letter came from; or
                                    as producers do: java, murmur3 or go
  -canary 10                        replay ten; go on when they are processed
  -canary-timeout 10m               end if they are not by then
  -max 100, -rate 50                at most so many; a second
  -max-replays 3                    leave letters that were replayed so often
  -new                              give up a replay that is not finished
export, purge:
  -o file                           where to; export writes to stdout without
  -no-export                        purge without
import:
  -i file, -skip 40                 where from; lines that are done
replay, purge, import, unsubscribe:
  -any-topic                        even if it seems to have no dead letters
  -yes                              do it
Connection, by default from PULSAR_URL, PULSAR_ADMIN_URL and client.conf, which
PULSAR_CLIENT_CONF names:
  -url pulsar://localhost:6650, -admin-url http://localhost:8080
  -auth-plugin name, -auth-params params
  -tls-trust-cert-path file, -tls-allow-insecure,
  -tls-enable-hostname-verification
  -encryption-private-key file, -encryption-public-key file,
  -encryption-key-name name         of encrypted letters
Output:
  -json                             for machines
  -v                                the client's log, on stderr

An interrupted replay or purge goes on with the same command. Exit codes: 0 for
success; 1 for an error, an interruption or a canary that is dead again; 2 for a
wrong command line.
`
