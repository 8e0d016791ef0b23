// SQL of granted permission rules. The only file that names the tables `permissions_*`.
import { isForeignKeyViolation } from '../../kernel/data/database-errors.ts';
import type { Database } from '../../kernel/data/database.ts';
import type { Effect, PermissionRule } from './rules.ts';

export interface GrantedRule extends PermissionRule {
  ruleId: string;
  /** The id of its session in the API; null for a rule of the project. */
  sessionId: string | null;
  createdBy: string;
  createdAt: string;
  expiresAt: string | null;
}

interface RuleRow {
  rule_id: string;
  session_public_id: string | null;
  tool: string;
  pattern: string | null;
  effect: Effect;
  created_by: string;
  created_at: Date;
  expires_at: Date | null;
}

export interface NewRule extends PermissionRule {
  ruleId: string;
  agentId: string;
  session: { key: string; id: string } | null;
  createdBy: string;
  expiresInMs: number | null;
}

export interface PermissionStore {
  /**
   * Rules that have not expired, the oldest first. With a session, only its rules and those of the project.
   */
  list(agentId: string, sessionKey?: string): Promise<GrantedRule[]>;
  /**
   * Inserts the rule. If the same rule exists, it keeps its id and gets the new expiry; a rule that denies
   * keeps the later expiry of the two. Returns the id of the rule, undefined when its session does not exist.
   * Also deletes expired rules.
   */
  upsert(rule: NewRule): Promise<string | undefined>;
  /** Removes a rule; returns whether it existed. */
  remove(agentId: string, ruleId: string): Promise<boolean>;
}

export function permissionStore({ sql }: Pick<Database, 'sql'>): PermissionStore {
  return {
    async list(agentId, sessionKey) {
      const rows = await sql<RuleRow[]>`
        select * from agent.permissions_rules
        where agent_id = ${agentId} and (expires_at is null or expires_at > agent.townhall_now())
          and (${sessionKey ?? null}::text is null or session_id is null
            or session_id = ${sessionKey ?? null})
        order by rule_id`;
      return rows.map(ruleOf);
    },
    async upsert({ ruleId, agentId, session, tool, pattern, effect, createdBy, expiresInMs }) {
      await sql`
        delete from agent.permissions_rules
        where agent_id = ${agentId} and expires_at <= agent.townhall_now()`;
      const [row] = await sql<{ rule_id: string }[]>`
        insert into agent.permissions_rules (
          rule_id, agent_id, session_id, session_public_id, tool, pattern, effect, created_by, expires_at)
        values (${ruleId}, ${agentId}, ${session?.key ?? null}, ${session?.id ?? null}, ${tool},
          ${pattern}, ${effect}, ${createdBy},
          agent.townhall_now() + ${expiresInMs}::double precision * interval '1 millisecond')
        on conflict on constraint permissions_rules_once do update
        set created_by = excluded.created_by, expires_at = case
          when excluded.effect <> 'deny' then excluded.expires_at
          when permissions_rules.expires_at is null or excluded.expires_at is null then null
          else greatest(permissions_rules.expires_at, excluded.expires_at) end
        returning rule_id`.catch((error: unknown) => {
        // The session was deleted after it was read.
        if (isForeignKeyViolation(error)) return [];
        throw error;
      });
      return row?.rule_id;
    },
    async remove(agentId, ruleId) {
      const rows = await sql`
        delete from agent.permissions_rules where agent_id = ${agentId} and rule_id = ${ruleId}
        returning 1 as removed`;
      return rows.length > 0;
    },
  };
}

function ruleOf(row: RuleRow): GrantedRule {
  return {
    ruleId: row.rule_id,
    sessionId: row.session_public_id,
    tool: row.tool,
    pattern: row.pattern,
    effect: row.effect,
    createdBy: row.created_by,
    createdAt: row.created_at.toISOString(),
    expiresAt: row.expires_at?.toISOString() ?? null,
  };
}
