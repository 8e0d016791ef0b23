// The settings of one MCP server in the plugin file.

import type { SandboxSettings } from '../../processes/index.ts';

/** An MCP server in the usual notation: a command to run, or an address. */
export type McpServer =
  | {
      command: string;
      args?: string[];
      env?: Record<string, string>;
      cwd?: string;
      sandbox?: SandboxSettings;
      disabled?: boolean;
      approval?: McpApproval;
    }
  | { url: string; headers?: Record<string, string>; disabled?: boolean; approval?: McpApproval };

/** Which of a server's tools need approval: all, none, or those that do not declare themselves read-only. */
export type McpApproval = 'always' | 'never' | 'writes';
