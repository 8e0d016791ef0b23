// Opens the bill of each call, stops the paid calls of users with repeated alarms,
// and waits for unsettled charges before the service closes.
import { ActiveSet } from '../../../kernel/active-set.ts';
import type { Clock } from '../../../kernel/clock.ts';
import type { Log } from '../../../kernel/log.ts';
import type { Ledger } from '../../credits/index.ts';
import type { Identity } from '../../identity.ts';
import { createTokenCounter } from '../metering/token-counter.ts';
import { Bill, type BilledCall } from './bill.ts';
import type { AlarmStore } from './alarm-store.ts';
import { RunningCalls } from './running-calls.ts';
import { createUsageAlarms, type UsageAlarms } from './usage-alarms.ts';

export interface Billing {
  open(call: BilledCall): Bill;
  /** Throws a 403 for a user whose paid calls are stopped after repeated alarms. */
  requirePayer(identity: Identity): void;
  readonly alarms: Pick<UsageAlarms, 'counts' | 'refresh'>;
  /** Resolves when every charge in progress is settled. */
  untilSettled(): Promise<void>;
  /** Stops the token counting thread, if it runs. */
  close(): Promise<void>;
}

export interface BillingOptions {
  ledger: Pick<Ledger, 'reserve' | 'hold' | 'available' | 'record'>;
  clock: Pick<Clock, 'monotonicMs'>;
  /** How many alarms within an hour stop the paid calls of a user; 3 by default. */
  alarmsToStop?: number | undefined;
  alarmStore?: AlarmStore | undefined;
  log?: Log;
}

export function createBilling({ ledger, clock, alarmsToStop, alarmStore, log }: BillingOptions): Billing {
  const alarms = createUsageAlarms({ clock, alarmsToStop, store: alarmStore, log });
  const settlements = new ActiveSet<Promise<unknown>>();
  const track = (settlement: Promise<unknown>): void => {
    const position = settlements.add(settlement);
    const forget = () => settlements.delete(position);
    settlement.then(forget, forget);
  };
  const tokenCounter = createTokenCounter();
  const options = { ledger, clock, alarms, tokenCounter, running: new RunningCalls(), track };
  return {
    open: (call) => new Bill(call, options),
    requirePayer(identity) {
      if (identity.kind === 'user') alarms.requireFew(identity.userId);
    },
    alarms,
    async untilSettled() {
      // The wait for the usage of a call whose caller has left ends with a charge.
      while (settlements.size > 0) await Promise.allSettled(settlements.members());
      await alarms.untilSettled();
    },
    close: tokenCounter.close,
  };
}
