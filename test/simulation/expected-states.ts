// States of the ledger and kinds of faults that a long run must reach.
import type { Coverage } from './coverage.ts';

const states: readonly string[] = [
  ...[
    'kill',
    'power cut',
    'shutdown',
    'stop',
    'suspend',
    'wall clock jump',
    'disk failure',
    'disk loss',
    'network cut',
    'balance read',
    'message faults',
    'database stop',
    'backup',
    'restore',
    'grant',
    'refund',
    'deduct',
    'cap',
    'revoke',
    'exact hold',
  ].map((kind) => `action ${kind}`),
  ...['slow', 'requestLost', 'answerLost', 'delayedCommit', 'doubled'].map((fault) => `message ${fault}`),
  ...['granted', 'short', 'stale', 'gone', 'closed'].map((outcome) => `allot ${outcome}`),
  ...['applied', 'repeated', 'mismatch', 'other_generation'].map((outcome) => `apply ${outcome}`),
  ...['insufficient_credits', 'credits_busy', 'database_unavailable', 'journal_unavailable'].map(
    (code) => `error ${code}`,
  ),
  'answer',
  'call without a gateway',
  'charge put aside',
  'closed flag',
  'exact hold',
  'give-back',
  'give-back that ends',
  'give-back that leaves what calls need',
  'grant beside an older ticket',
  'late charge',
  'balance with all charges',
  'balance with credits in use',
  'balance with idle credits alone',
  'overrun',
  'price above the reservation',
  'raise',
  'recall during a give-back',
  'recall flag',
  'release',
  'replay of a dead process',
  'journal of another generation',
  'reserve at once',
  'reserve with a wait',
  'settle twice',
  'spend the rest',
  'take-back',
];

export function missingStates(coverage: Coverage): string[] {
  const counts = coverage.counts();
  return states.filter((state) => (counts.get(state) ?? 0) === 0);
}
