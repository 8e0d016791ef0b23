// `townhall ledger`: verifies the ledger, shows an account with its allotments, and handles
// journals that were put aside.
import { journalFolder } from '../../gateway/config.ts';
import type { GatewayConfig } from '../../gateway/config.ts';
import {
  creditsStore,
  discardAside,
  listAside,
  readLedgerView,
  restoreFromAside,
  sqlAllotmentStore,
  verifyLedger,
} from '../../gateway/credits/index.ts';
import type { LedgerFault, LedgerVerdict, LedgerView } from '../../gateway/credits/index.ts';
import { action, type Command } from '../command-line/command.ts';
import { askServer, gatewayDatabase, withDatabase } from '../data/database-location.ts';
import { dataNotes, dataOptions, readConfigHere } from '../data/gateway-config.ts';
import { describeJournals, serializeJournals } from '../ledger/journal.ts';
import { describeLedger } from '../ledger/show.ts';

export const command: Command = {
  description: [
    '"verify" compares balances with entries, holds with charges, and charges with usage records. It exits 1 and names the',
    'inconsistent rows. "show" prints an account and the credits that gateways have set aside for its keys.',
    '"journal" handles journals of charges that no gateway may apply by itself: journals of a ledger from before a restore,',
    'and copies of damaged segments. You can run all of these commands while servers run.',
  ],
  actions: [
    action({
      path: 'verify',
      summary: 'Check that balances, charges and usage agree.',
      options: dataOptions,
      async run({ options, ...context }) {
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const location = gatewayDatabase(config);
        // Reads the database without the master key: the ledger contains no secrets, so an auditor
        // does not need it.
        const verdict = await askServer(location, { name: 'ledger.verify', input: null }, () =>
          withDatabase(location, (database) => verifyLedger(creditsStore(database), config.usageDays)),
        );
        if (options.json) context.print(JSON.stringify(verdict));
        else {
          const printLine = verdict.ok ? context.print : context.printError;
          for (const line of describe(verdict)) printLine(line);
        }
        return verdict.ok ? 0 : 1;
      },
    }),
    action({
      path: 'show',
      summary: 'Print an account with its allotments, reservations and unapplied charges.',
      arguments: { user: { placeholder: 'USER' } },
      options: dataOptions,
      async run({ options, arguments: { user }, ...context }) {
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const view = await readView(config, user);
        if (view === null) throw new Error(`There is no user ${user} in the ledger.`);
        if (options.json) context.print(JSON.stringify(view));
        else for (const line of describeLedger(view, new Date())) context.print(line);
        return 0;
      },
    }),
    action({
      path: 'journal list',
      summary: 'List the journals that were put aside, with their charges.',
      options: dataOptions,
      async run({ options, ...context }) {
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const journals = await listAside(journalFolder(config));
        if (options.json) context.print(JSON.stringify(serializeJournals(journals)));
        else for (const line of describeJournals(journals)) context.print(line);
        return 0;
      },
    }),
    action({
      path: 'journal apply',
      summary: 'Apply the charges of a journal to the current ledger, each call at most once.',
      arguments: { journal: { placeholder: 'JOURNAL' } },
      options: dataOptions,
      async run({ options, arguments: { journal }, ...context }) {
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const generation = await readGeneration(config);
        const journalId = await restoreFromAside(journalFolder(config), journal, {
          generation,
          usageDays: config.usageDays,
        });
        if (options.json) context.print(JSON.stringify({ journal: journalId }));
        else context.print(`A gateway with this JOURNAL_PATH applies it as ${journalId} within a minute.`);
        return 0;
      },
    }),
    action({
      path: 'journal discard',
      summary: 'Delete a journal that was put aside, without applying its charges.',
      arguments: { journal: { placeholder: 'JOURNAL' } },
      options: {
        yes: { kind: 'switch', summary: 'Delete it; without this option nothing is deleted.' },
        ...dataOptions,
      },
      async run({ options, arguments: { journal }, ...context }) {
        const config = await readConfigHere({ 'database-path': options['database-path'] }, context);
        const folder = journalFolder(config);
        const [entry] = (await listAside(folder)).filter(({ name }) => name === journal);
        if (entry !== undefined && !options.yes)
          throw new Error(
            `${journal} has ${entry.charges} charges of ${entry.credits} credits. Repeat the command with --yes to delete them.`,
          );
        await discardAside(folder, journal);
        if (options.json) context.print(JSON.stringify({ journal }));
        else context.print(`${journal} is deleted.`);
        return 0;
      },
    }),
  ],
  notes: ['USAGE_DAYS sets how long usage records are kept; missing older ones are no error.', ...dataNotes],
};

function readView(config: GatewayConfig, userId: string): Promise<LedgerView | null> {
  const location = gatewayDatabase(config);
  return askServer(location, { name: 'ledger.show', input: userId }, () =>
    withDatabase(location, (database) =>
      readLedgerView({ credits: creditsStore(database), allotments: sqlAllotmentStore(database) }, userId),
    ),
  );
}

function readGeneration(config: GatewayConfig): Promise<string> {
  const location = gatewayDatabase(config);
  return askServer(location, { name: 'ledger.generation', input: null }, () =>
    withDatabase(location, (database) => sqlAllotmentStore(database).generation()),
  );
}

const sentences: Readonly<Record<string, (fault: LedgerFault) => string>> = {
  tx_not_balanced: ({ row, found: actual }) =>
    `The entries of transaction ${row} add up to ${actual}, not to zero.`,
  tx_missing: ({ row }) => `Entries name transaction ${row}, which does not exist.`,
  entry_of_another_account: ({ row, expected }) =>
    `Transaction ${row} of account ${expected} has an entry of another account.`,
  hold_missing: ({ row }) => `Hold ${row} was charged, but does not exist.`,
  charge_not_as_held: ({ row, expected, found: actual }) =>
    `Hold ${row} says that ${expected} was charged, but its entries say ${actual}.`,
  posted_not_as_entries: ({ row, expected, found: actual }) =>
    `Account ${row} has ${actual} posted, but its entries add up to ${expected}.`,
  owed_not_as_entries: ({ row, expected, found: actual }) =>
    `Account ${row} owes ${actual}, but its entries add up to ${expected}.`,
  held_not_as_holds: ({ row, expected, found: actual }) =>
    `Account ${row} has ${actual} held, but its open holds and allotments add up to ${expected}.`,
  account_below_zero: ({ row, found: actual }) => `Account ${row} has ${actual} available.`,
  key_held_not_as_holds: ({ row, expected, found: actual }) =>
    `API key ${row} has ${actual} held, but its open holds and allotments add up to ${expected}.`,
  batch_not_as_usage: ({ row, expected, found: actual }) =>
    `Batch ${row} charged ${actual}, but its usage records add up to ${expected}.`,
  journal_behind_batch: ({ row, found: actual }) =>
    `Batch ${row} was charged, but its journal is applied only up to ${actual ?? 'nothing'}.`,
  journal_below_zero: ({ row, found: actual }) => `Journal ${row} is applied up to ${actual}.`,
  journal_never_applied: ({ row, expected }) =>
    `Journal ${row} is applied up to ${expected}, but no batch has applied it.`,
  generation_missing: ({ found: actual }) => `The ledger has ${actual} generations, not one.`,
  allotment_not_covering: ({ row, expected, found: actual }) =>
    `Allotment ${row} has ${actual}, less than the ${expected} that are reserved or not yet applied.`,
  ended_allotment_not_empty: ({ row, found: actual }) =>
    `Allotment ${row} has ended and still has ${actual}.`,
  allotment_without_account: ({ row, expected }) =>
    `Allotment ${row} belongs to account ${expected}, which does not exist.`,
  allotment_of_another_account: ({ row, expected, found: actual }) =>
    `Allotment ${row} belongs to account ${actual}, but its API key to ${expected}.`,
  recall_without_account: ({ row, expected }) =>
    `Recall ${row} belongs to account ${expected}, which does not exist.`,
  hold_not_as_charge: ({ row, expected, found: actual }) =>
    `Hold ${row} says that ${actual} was charged, but its entries say ${expected}.`,
  usage_not_as_charge: ({ row, expected, found: actual }) =>
    `Usage record ${row} says ${actual} credits, but ${expected} were charged.`,
  usage_missing: ({ row, expected }) =>
    `Usage record ${row} is missing; ${expected} credits were charged for it.`,
  charge_missing: ({ row, expected }) =>
    `Usage record ${row} says ${expected} credits, which were never charged.`,
};

function describe({ ok, faults: mismatches, ...counts }: LedgerVerdict): string[] {
  const { transactions, accounts, holds, allotments, usage } = counts;
  const size = [
    `${transactions} transactions`,
    `${accounts} accounts`,
    `${holds} holds`,
    `${allotments} allotments`,
    `${usage} usage records`,
  ].join(', ');
  if (ok) return [`The ledger is consistent: ${size}.`];
  return [
    `The ledger is not consistent: ${size}.`,
    ...mismatches.map((fault) => sentences[fault.fault]?.(fault) ?? `${fault.fault}: ${fault.row}`),
  ];
}
