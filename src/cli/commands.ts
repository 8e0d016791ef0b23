// The list of commands. Each file is loaded only when its command runs, so that the overview does
// not load a server's code. To add a command, add its file and one entry here.
import type { CommandEntry } from './command-line/command.ts';

/** The commands in the order of the overview. */
export const commands: readonly CommandEntry[] = [
  {
    name: 'start',
    summary: 'Run the local edition: a gateway and an agent beside it.',
    load: () => import('./commands/start.ts'),
  },
  { name: 'gateway', summary: 'Run the gateway.', load: () => import('./commands/gateway.ts') },
  {
    name: 'agent',
    summary: 'Run an agent that works through a gateway.',
    load: () => import('./commands/agent.ts'),
  },
  {
    name: 'console',
    summary: 'Serve pages for a running agent: chat, sessions, plugins, services, approvals.',
    load: () => import('./commands/console.ts'),
  },
  {
    name: 'init',
    summary: 'Create a project with one service, ready to deploy, or a plugin.',
    load: () => import('./commands/init.ts'),
  },
  {
    name: 'link',
    summary: 'Let editors and tests find "townhall" from a project or a plugin.',
    load: () => import('./commands/link.ts'),
  },
  {
    name: 'deploy',
    summary: 'Deploy the project in this folder without downtime.',
    load: () => import('./commands/deploy.ts'),
  },
  {
    name: 'city',
    summary: 'Operate the deployed project: status, rollback, stop, start, logs.',
    load: () => import('./commands/city.ts'),
  },
  {
    name: 'admin',
    summary: "Manage the credentials of the administrator and of products' backends.",
    load: () => import('./commands/admin.ts'),
  },
  {
    name: 'audit',
    summary: 'List the entries of the audit log, and verify its hash chain.',
    load: () => import('./commands/audit.ts'),
  },
  {
    name: 'ledger',
    summary: 'Verify the ledger, show an account, handle journals of charges.',
    load: () => import('./commands/ledger.ts'),
  },
  {
    name: 'login',
    summary: 'Log in to a gateway and store the token for the commands below.',
    load: () => import('./commands/login.ts'),
  },
  {
    name: 'logout',
    summary: 'Revoke the stored token at the gateway and delete it from this machine.',
    load: () => import('./commands/logout.ts'),
  },
  {
    name: 'connect',
    summary: 'Point a coding agent, such as Claude Code or Codex, at a gateway.',
    load: () => import('./commands/connect.ts'),
  },
  {
    name: 'call',
    summary: 'Call any operation of a running server by its name in the contract.',
    load: () => import('./commands/call.ts'),
  },
  {
    name: 'profile',
    summary: 'Name servers and their credentials for the commands below.',
    load: () => import('./commands/profile.ts'),
  },
  {
    name: 'users',
    summary: 'List users and balances, block or remove a user.',
    load: () => import('./commands/users.ts'),
  },
  {
    name: 'keys',
    summary: 'List, create and revoke your API keys.',
    load: () => import('./commands/keys.ts'),
  },
  {
    name: 'usage',
    summary: 'List calls with their models and credits.',
    load: () => import('./commands/usage.ts'),
  },
  {
    name: 'models',
    summary: 'List the models, check their providers, and update the catalog of models and prices.',
    load: () => import('./commands/models.ts'),
  },
  {
    name: 'env',
    summary: 'Seal stored secrets with a new master key, and list the keys in use.',
    load: () => import('./commands/env.ts'),
  },
  {
    name: 'db',
    summary: 'Back up, restore, compact or migrate the database.',
    load: () => import('./commands/db.ts'),
  },
  {
    name: 'logs',
    summary: 'Show the log of the local edition or of a file, or the lines of one request.',
    load: () => import('./commands/logs.ts'),
  },
  {
    name: 'doctor',
    summary: 'Check the machine, the settings and the data, with advice for each problem.',
    load: () => import('./commands/doctor.ts'),
  },
  {
    name: 'completions',
    summary: 'Print shell completions for bash, zsh or fish.',
    load: async () => ({
      command: (await import('./commands/completions.ts')).completionsCommand(commands),
    }),
  },
];
