// The one list of commands.
import { adminCommand } from './admin.ts';
import { agentCommand } from './agent.ts';
import type { Command } from './command.ts';
import { gatewayCommand } from './gateway.ts';
import { startCommand } from './start.ts';

export const commands: Readonly<Record<string, Command>> = {
  start: startCommand,
  gateway: gatewayCommand,
  agent: agentCommand,
  admin: adminCommand,
};
