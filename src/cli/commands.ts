// The one list of commands. Each is loaded only when it is asked for, so that `--help` does not wait for a server's code.
import type { Command } from './command.ts';

/** A command's line in the overview, and how to get at the rest. */
export interface CommandEntry {
  summary: string;
  load(): Promise<Command>;
}

export const commands: Readonly<Record<string, CommandEntry>> = {
  start: {
    summary: 'Run the local edition: a gateway and an agent beside it.',
    load: async () => (await import('./start.ts')).startCommand,
  },
  gateway: {
    summary: 'Run the gateway.',
    load: async () => (await import('./gateway.ts')).gatewayCommand,
  },
  agent: {
    summary: 'Run an agent that works through a gateway.',
    load: async () => (await import('./agent.ts')).agentCommand,
  },
  admin: {
    summary: "Administrator's credentials, and those of products' backends.",
    load: async () => (await import('./admin.ts')).adminCommand,
  },
  audit: {
    summary: 'Verify the chain of the audit log.',
    load: async () => (await import('./audit.ts')).auditCommand,
  },
  models: {
    summary: 'Call each configured model provider once and say what is wrong.',
    load: async () => (await import('./models.ts')).modelsCommand,
  },
  env: {
    summary: 'Seal stored secrets under a new master key.',
    load: async () => (await import('./env.ts')).envCommand,
  },
};
