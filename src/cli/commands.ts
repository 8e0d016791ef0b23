// The one list of commands. Each is loaded only when it is asked for, so that `--help` does not wait for a server's code.
import type { Command } from './command-line/command.ts';

/** A command's line in the overview, and how to get at the rest. */
export interface CommandEntry {
  summary: string;
  load(): Promise<Command>;
}

export const commands: Readonly<Record<string, CommandEntry>> = {
  start: {
    summary: 'Run the local edition: a gateway and an agent beside it.',
    load: async () => (await import('./commands/start.ts')).startCommand,
  },
  gateway: {
    summary: 'Run the gateway.',
    load: async () => (await import('./commands/gateway.ts')).gatewayCommand,
  },
  agent: {
    summary: 'Run an agent that works through a gateway.',
    load: async () => (await import('./commands/agent.ts')).agentCommand,
  },
  console: {
    summary: 'Serve pages for a running agent: chat, sessions, plugins, services, approvals.',
    load: async () => (await import('./commands/console.ts')).consoleCommand,
  },
  init: {
    summary: 'Make a project with a service of its own, which deploys as it is.',
    load: async () => (await import('./commands/init.ts')).initCommand,
  },
  deploy: {
    summary: 'Bring the project of this folder into service, without refusing a request.',
    load: async () => (await import('./commands/deploy.ts')).deployCommand,
  },
  city: {
    summary: 'Look after what was deployed: status, rollback, stop, start, logs.',
    load: async () => (await import('./commands/city.ts')).cityCommand,
  },
  admin: {
    summary: "Administrator's credentials, and those of products' backends.",
    load: async () => (await import('./commands/admin.ts')).adminCommand,
  },
  audit: {
    summary: 'Verify the chain of the audit log.',
    load: async () => (await import('./commands/audit.ts')).auditCommand,
  },
  ledger: {
    summary: 'Verify that balances, charges and usage agree.',
    load: async () => (await import('./commands/ledger.ts')).ledgerCommand,
  },
  call: {
    summary: 'Call any operation of a running server by its name in the contract.',
    load: async () => (await import('./commands/call.ts')).callCommand,
  },
  models: {
    summary: 'Call each configured model provider once and say what is wrong.',
    load: async () => (await import('./commands/models.ts')).modelsCommand,
  },
  env: {
    summary: 'Seal stored secrets under a new master key, and list the keys in use.',
    load: async () => (await import('./commands/env.ts')).envCommand,
  },
  db: {
    summary: 'Back the database up, restore it, or bring it up to date.',
    load: async () => (await import('./commands/db.ts')).dbCommand,
  },
  doctor: {
    summary: 'Look whether everything is as a server needs it, and say what to do where it is not.',
    load: async () => (await import('./commands/doctor.ts')).doctorCommand,
  },
  completions: {
    summary: 'Print completions for bash, zsh or fish.',
    load: async () => (await import('./commands/completions.ts')).completionsCommand(() => commands),
  },
};
