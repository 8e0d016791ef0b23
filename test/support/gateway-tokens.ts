// Credentials from a gateway that runs as a process with an administrator.
import { createGatewayClient } from '@townhall/gateway';

/** Logs in, creates a Bureau and issues a token to a new user of it. */
export async function issueGatewayTokens(
  baseUrl: string,
  administrator: { admin_id: string; password: string },
): Promise<{ userToken: string; adminSession: string }> {
  const { session_token: adminSession } = await createGatewayClient({ baseUrl }).admin.login(administrator);
  const admin = createGatewayClient({ baseUrl, token: adminSession });
  const { bureau_id } = await admin.bureaus.createBureau({ server_url: 'https://example.test' });
  const { user_token: userToken } = await admin.accounts.issueToken({ bureau_id, external_id: 'ada' });
  return { userToken, adminSession };
}
