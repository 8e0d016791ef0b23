// `townhall ledger verify`: holds the ledger against itself and exits 1 when a row does not fit.
import type { GatewayConfig } from '../../gateway/config.ts';
import { creditsStore, verifyLedger } from '../../gateway/credits/index.ts';
import type { LedgerFault, LedgerVerdict } from '../../gateway/credits/index.ts';
import { SettingError } from '../../kernel/settings.ts';
import { parseFlags } from '../command-line/command.ts';
import type { Command } from '../command-line/command.ts';
import { gatewayConfigHere, hereHelp } from '../data/gateway-config.ts';
import { gatewayPlace, withDatabase } from '../data/database-location.ts';
import { askRunning } from '../data/running-gateway.ts';

export const ledgerCommand: Command = {
  help: () =>
    [
      'Usage: townhall ledger verify [OPTIONS]',
      '',
      'Holds balances against entries, holds against charges, and charges against usage records. Exits 1 and names the',
      'rows when something does not fit. It may run beside servers that are at work.',
      '',
      '  --database-path PATH   folder of the embedded database (./data/townhall.db)',
      '  --json                 print the result as JSON',
      '',
      'USAGE_DAYS says how long usage records are kept; older ones are not missed.',
      ...hereHelp,
    ].join('\n'),
  async run(input) {
    const { flags, words } = parseFlags(input.arguments, { flags: ['database-path'], switches: ['json'] });
    if (words.length !== 1 || words[0] !== 'verify')
      throw new SettingError('say "townhall ledger verify"; see --help.');
    const config = await gatewayConfigHere({ 'database-path': flags['database-path'] }, input);
    const verdict = await askRunning(config, { name: 'ledger.verify', input: null }, () =>
      verifyHere(config),
    );
    if (flags['json'] === 'true') input.print(JSON.stringify(verdict));
    else for (const line of describe(verdict)) (verdict.ok ? input.print : input.complain)(line);
    return verdict.ok ? 0 : 1;
  },
};

// Beside the servers and without the master key: the ledger holds no secrets, and whoever examines it need not.
async function verifyHere(config: GatewayConfig): Promise<LedgerVerdict> {
  return withDatabase(gatewayPlace(config), (database) =>
    verifyLedger(creditsStore(database), config.usageDays),
  );
}

const sentences: Readonly<Record<string, (fault: LedgerFault) => string>> = {
  tx_not_balanced: ({ row, found }) => `The entries of transaction ${row} come to ${found}, not to nothing.`,
  tx_missing: ({ row }) => `Entries name transaction ${row}, which is gone.`,
  entry_of_another_account: ({ row, expected }) =>
    `Transaction ${row} of account ${expected} has an entry of another one.`,
  hold_missing: ({ row }) => `Hold ${row} was charged and is gone.`,
  charge_not_as_held: ({ row, expected, found }) =>
    `Hold ${row} says that ${expected} was charged, and its entries say ${found}.`,
  posted_not_as_entries: ({ row, expected, found }) =>
    `Account ${row} has ${found} posted, and its entries come to ${expected}.`,
  owed_not_as_entries: ({ row, expected, found }) =>
    `Account ${row} owes ${found}, and its entries come to ${expected}.`,
  held_not_as_holds: ({ row, expected, found }) =>
    `Account ${row} has ${found} held, and its open holds come to ${expected}.`,
  account_below_zero: ({ row, found }) => `Account ${row} has ${found} available.`,
  key_held_not_as_holds: ({ row, expected, found }) =>
    `API key ${row} has ${found} held, and its open holds come to ${expected}.`,
  hold_not_as_charge: ({ row, expected, found }) =>
    `Hold ${row} says that ${found} was charged, and its entries say ${expected}.`,
  usage_not_as_charge: ({ row, expected, found }) =>
    `Usage record ${row} says ${found} credits, and ${expected} were charged.`,
  usage_missing: ({ row, expected }) =>
    `Usage record ${row} is gone; ${expected} credits were charged for it.`,
  charge_missing: ({ row, expected }) =>
    `Usage record ${row} says ${expected} credits, which were never charged.`,
};

function describe({ ok, transactions, accounts, holds, usage, faults }: LedgerVerdict): string[] {
  const size = `${transactions} transactions, ${accounts} accounts, ${holds} holds, ${usage} usage records`;
  if (ok) return [`The ledger agrees with itself: ${size}.`];
  return [
    `The ledger does not agree with itself: ${size}.`,
    ...faults.map((fault) => sentences[fault.fault]?.(fault) ?? `${fault.fault}: ${fault.row}`),
  ];
}
