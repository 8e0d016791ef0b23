// `townhall ledger verify`: checks the ledger against itself and exits 1 when a row does not agree.
import { creditsStore, verifyLedger } from '../../gateway/credits/index.ts';
import type { LedgerFault, LedgerVerdict } from '../../gateway/credits/index.ts';
import { action, type Command } from '../command-line/command.ts';
import { askServer, gatewayDatabase, withDatabase } from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';

export const command: Command = {
  description: [
    'Compares balances with entries, holds with charges, and charges with usage records. Exits 1 and names the rows that',
    'do not agree. It may run beside working servers.',
  ],
  actions: [
    action({
      path: 'verify',
      options: dataOptions,
      async run({ options, ...context }) {
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const location = gatewayDatabase(config);
        // Reads the database without the master key: the ledger contains no secrets, and an auditor needs none.
        const verdict = await askServer(location, { name: 'ledger.verify', input: null }, () =>
          withDatabase(location, (database) => verifyLedger(creditsStore(database), config.usageDays)),
        );
        if (options.json) context.print(JSON.stringify(verdict));
        else for (const line of describe(verdict)) (verdict.ok ? context.print : context.printError)(line);
        return verdict.ok ? 0 : 1;
      },
    }),
  ],
  notes: ['USAGE_DAYS says how long usage records are kept; older ones are not missed.', ...dataNotes],
};

const sentences: Readonly<Record<string, (fault: LedgerFault) => string>> = {
  tx_not_balanced: ({ row, found: actual }) =>
    `The entries of transaction ${row} come to ${actual}, not to nothing.`,
  tx_missing: ({ row }) => `Entries name transaction ${row}, which is gone.`,
  entry_of_another_account: ({ row, expected }) =>
    `Transaction ${row} of account ${expected} has an entry of another one.`,
  hold_missing: ({ row }) => `Hold ${row} was charged and is gone.`,
  charge_not_as_held: ({ row, expected, found: actual }) =>
    `Hold ${row} says that ${expected} was charged, and its entries say ${actual}.`,
  posted_not_as_entries: ({ row, expected, found: actual }) =>
    `Account ${row} has ${actual} posted, and its entries come to ${expected}.`,
  owed_not_as_entries: ({ row, expected, found: actual }) =>
    `Account ${row} owes ${actual}, and its entries come to ${expected}.`,
  held_not_as_holds: ({ row, expected, found: actual }) =>
    `Account ${row} has ${actual} held, and its open holds and allotments come to ${expected}.`,
  account_below_zero: ({ row, found: actual }) => `Account ${row} has ${actual} available.`,
  key_held_not_as_holds: ({ row, expected, found: actual }) =>
    `API key ${row} has ${actual} held, and its open holds and allotments come to ${expected}.`,
  batch_not_as_usage: ({ row, expected, found: actual }) =>
    `Batch ${row} charged ${actual}, and its usage records come to ${expected}.`,
  journal_behind_batch: ({ row, found: actual }) =>
    `Batch ${row} was charged, and its journal is applied up to ${actual ?? 'nothing'} only.`,
  journal_below_zero: ({ row, found: actual }) => `Journal ${row} is applied up to ${actual}.`,
  journal_never_applied: ({ row, expected }) =>
    `Journal ${row} is applied up to ${expected}, and no batch has done that.`,
  generation_missing: ({ found: actual }) => `The ledger has ${actual} generations, not one.`,
  allotment_not_covering: ({ row, expected, found: actual }) =>
    `Allotment ${row} has ${actual}, less than the ${expected} that are reserved or not yet applied.`,
  ended_allotment_not_empty: ({ row, found: actual }) =>
    `Allotment ${row} has ended and still has ${actual}.`,
  allotment_without_account: ({ row, expected }) =>
    `Allotment ${row} is of account ${expected}, which is gone.`,
  allotment_of_another_account: ({ row, expected, found: actual }) =>
    `Allotment ${row} is of account ${actual}, and its API key of ${expected}.`,
  recall_without_account: ({ row, expected }) => `Recall ${row} is of account ${expected}, which is gone.`,
  hold_not_as_charge: ({ row, expected, found: actual }) =>
    `Hold ${row} says that ${actual} was charged, and its entries say ${expected}.`,
  usage_not_as_charge: ({ row, expected, found: actual }) =>
    `Usage record ${row} says ${actual} credits, and ${expected} were charged.`,
  usage_missing: ({ row, expected }) =>
    `Usage record ${row} is gone; ${expected} credits were charged for it.`,
  charge_missing: ({ row, expected }) =>
    `Usage record ${row} says ${expected} credits, which were never charged.`,
};

function describe({ ok, faults: mismatches, ...counts }: LedgerVerdict): string[] {
  const { transactions, accounts, holds, allotments, usage } = counts;
  const size = `${transactions} transactions, ${accounts} accounts, ${holds} holds, ${allotments} allotments, ${usage} usage records`;
  if (ok) return [`The ledger agrees with itself: ${size}.`];
  return [
    `The ledger does not agree with itself: ${size}.`,
    ...mismatches.map((fault) => sentences[fault.fault]?.(fault) ?? `${fault.fault}: ${fault.row}`),
  ];
}
