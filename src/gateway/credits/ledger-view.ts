// The ledger's data of one user for `townhall ledger show`: the account and its open
// allotments with the counts of their gateways' last reports. Plain JSON, since a
// running server returns it through its control socket.
import type { AllotmentStore, AllotmentView } from './allotments/store.ts';
import type { CreditsStore } from './core/store.ts';

export interface LedgerView {
  user_id: string;
  posted: number;
  /** Holds, reservations and unapplied charges; idle credits of allotments count as available. */
  held: number;
  owed: number;
  allotments: AllotmentLine[];
}

export interface AllotmentLine {
  allotment_id: string;
  token_id: string;
  gateway_id: string;
  amount: number;
  reserved: number;
  unapplied: number;
  is_recalled: boolean;
  is_closed: boolean;
  /** This and the two times below are RFC 3339, by the database's clock. */
  created_at: string;
  reported_at: string;
  lease_until: string;
}

/** Null for an unknown user. */
export async function readLedgerView(
  { credits, allotments }: { credits: Pick<CreditsStore, 'findAccount'>; allotments: AllotmentStore },
  userId: string,
): Promise<LedgerView | null> {
  const account = await credits.findAccount(userId);
  if (account === null) return null;
  const allotmentRows = await allotments.listAllotments(userId);
  return {
    user_id: userId,
    posted: Number(account.posted),
    held: Number(account.held),
    owed: Number(account.owed),
    allotments: allotmentRows.map(toLine),
  };
}

function toLine(view: AllotmentView): AllotmentLine {
  return {
    allotment_id: view.allotmentId,
    token_id: view.tokenId,
    gateway_id: view.gatewayId,
    amount: Number(view.amount),
    reserved: Number(view.reserved),
    unapplied: Number(view.unapplied),
    is_recalled: view.isRecalled,
    is_closed: view.isClosed,
    created_at: view.createdAt.toISOString(),
    reported_at: view.reportedAt.toISOString(),
    lease_until: view.leaseUntil.toISOString(),
  };
}
