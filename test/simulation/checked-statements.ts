// Statements of the database with checks of their effects.
import {
  ticketMs,
  type AllotmentRow,
  type AllotRequest,
  type AllotResult,
  type GiveBackRequest,
} from '../../src/gateway/credits/allotments/store.ts';
import { larger } from './bigint.ts';
import { fail, type Gateway, type World } from './world.ts';

/**
 * Runs `allot` and checks it: a grant clears no recall, and it leaves the credits that
 * older tickets of the account wait for, since returned credits go to the oldest ticket.
 */
export function allotInTurn(world: World, request: AllotRequest): AllotResult {
  const { model } = world.server;
  const { userId, gatewayId, tokenId, need } = request;
  const ownTicket = request.ticket === undefined ? undefined : model.tickets.get(request.ticket);
  const sinceMs = world.scheduler.nowMs() + world.server.clockAheadMs - ticketMs;
  let promisedCredits = 0n;
  for (const ticket of model.tickets.values()) {
    const isOther = ticket.gatewayId !== gatewayId || ticket.tokenId !== tokenId;
    const isBefore = ownTicket === undefined || ticket.createdMs < ownTicket.createdMs;
    if (ticket.userId === userId && isOther && isBefore && ticket.createdMs > sinceMs)
      promisedCredits += ticket.need;
  }
  const wasRecalled = model.allotments.get(request.allotmentId)?.isRecalled === true;
  const answer = model.allot(request);
  if (wasRecalled && answer.row?.isRecalled === false)
    fail(world, `a grant answered a recall of ${request.allotmentId}`);
  if (answer.outcome !== 'granted' || need <= 0n || promisedCredits === 0n) return answer;
  world.coverage.count('grant beside an older ticket');
  const account = model.accounts.get(userId);
  const remainingCredits = account === undefined ? 0n : account.posted - account.held;
  if (remainingCredits < promisedCredits)
    fail(world, `a grant left ${remainingCredits} credits, and older tickets wait for ${promisedCredits}`);
  return answer;
}

/**
 * Runs a give-back and checks its effect: the gateway keeps no more credits than its calls needed when
 * the statement was sent, and only recalls that the gateway has read are cleared.
 */
export function giveBackAllIdle(
  world: World,
  gateway: Gateway,
  requests: readonly GiveBackRequest[],
): () => (AllotmentRow | null)[] {
  const { model } = world.server;
  const stateWhenSent = new Map(
    [...gateway.reports()].map(({ allotmentId, reserved, unapplied, charged, recall }) => [
      allotmentId,
      { use: reserved + unapplied + charged, recall },
    ]),
  );
  return () => {
    const rowsBefore = new Map(
      model.read(requests.map(({ allotmentId }) => allotmentId)).map((row) => [row.allotmentId, row]),
    );
    const rows = model.giveBack(requests);
    for (const row of rows) {
      if (row === null || row.version === rowsBefore.get(row.allotmentId)?.version) continue;
      const sender = stateWhenSent.get(row.allotmentId);
      if (sender === undefined) continue;
      world.coverage.count('give-back that leaves what calls need');
      // A charge since then lowers the need.
      if (row.amount + row.charged > larger(sender.use, row.charged))
        fail(world, `a give-back left ${row.amount} credits of ${row.allotmentId}, more than its calls need`);
      if (row.recall > sender.recall) {
        world.coverage.count('recall during a give-back');
        if (!row.isRecalled)
          fail(world, `a give-back answered a recall of ${row.allotmentId} that its sender did not know`);
      }
    }
    return rows;
  };
}
