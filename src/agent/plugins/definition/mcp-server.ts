// The settings of one MCP server, as the plugin file has them.

/** An MCP server in the usual notation: a command to run, or an address. */
export type McpServer =
  | {
      command: string;
      args?: string[];
      env?: Record<string, string>;
      cwd?: string;
      disabled?: boolean;
      approval?: McpApproval;
    }
  | { url: string; headers?: Record<string, string>; disabled?: boolean; approval?: McpApproval };

/** Which of a server's tools need approval: all, none, or those that do not declare themselves read-only. */
export type McpApproval = 'always' | 'never' | 'writes';
