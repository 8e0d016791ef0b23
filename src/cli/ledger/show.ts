// `townhall ledger show USER`: the account and its open allotments as lines.
import type { AllotmentLine, LedgerView } from '../../gateway/credits/index.ts';
import { alignColumns } from '../command-line/columns.ts';

/** Ages and leases are shown relative to `now`. */
export function describeLedger(view: LedgerView, now: Date): string[] {
  const { user_id: userId, posted, held, owed: debt, allotments } = view;
  const totals = [
    `${formatCredits(posted)} posted`,
    `${formatCredits(held)} held`,
    `${formatCredits(debt)} owed`,
  ];
  const totalLine = `${userId}: ${totals.join(', ')}.`;
  if (allotments.length === 0) return [totalLine, 'No credits are set aside in a gateway.'];
  const header = [
    'allotment',
    'key',
    'gateway',
    'amount',
    'reserved',
    'unapplied',
    'age',
    'reported',
    'lease',
    'state',
  ];
  return [totalLine, ...alignColumns([header, ...allotments.map((line) => cellsOf(line, now))])];
}

function cellsOf(line: AllotmentLine, now: Date): string[] {
  const leaseMs = Date.parse(line.lease_until) - now.getTime();
  return [
    line.allotment_id,
    line.token_id,
    line.gateway_id,
    formatCredits(line.amount),
    formatCredits(line.reserved),
    formatCredits(line.unapplied),
    formatSpan(now.getTime() - Date.parse(line.created_at)),
    `${formatSpan(now.getTime() - Date.parse(line.reported_at))} ago`,
    leaseMs > 0 ? `${formatSpan(leaseMs)} left` : `expired ${formatSpan(-leaseMs)} ago`,
    stateOf(line),
  ];
}

function stateOf({ is_closed: isClosed, is_recalled: isRecalled }: AllotmentLine): string {
  if (isClosed) return 'closed';
  return isRecalled ? 'recalled' : 'open';
}

function formatCredits(amount: number): string {
  return amount.toLocaleString('en-US');
}

function formatSpan(ms: number): string {
  const seconds = Math.max(0, Math.round(ms / 1_000));
  if (seconds < 120) return `${seconds} s`;
  if (seconds < 7_200) return `${Math.round(seconds / 60)} min`;
  return `${Math.round(seconds / 3_600)} h`;
}
