// The public interface of deployments for the command line: the declaration, the plan, its
// execution, and the supervisor.
export {
  declarationSchema,
  openProject,
  parseDeclaration,
  readDeclaration,
  type Declaration,
  type OpenedProject,
} from './declaration.ts';
export { cityData } from './city-data.ts';
export { cityFolder, type CityFolder, type CityState } from './supervisor/city-folder.ts';
export {
  deploy,
  rollBack,
  verify,
  type Deployment,
  type DeployOptions,
  type Step,
  type Verification,
} from './deploy.ts';
export { makePlan, survey, type InspectedService, type Plan, type Survey } from './plan.ts';
export { linkInstallation } from './link.ts';
export { makePlugin, makeProject } from './template.ts';
export { isRendered, renderProject } from './render.ts';
export { startDetached, supervisorClient, type SupervisorClient } from './supervisor-client.ts';
export { startSupervisor } from './supervisor/supervisor.ts';
export { logFileNames, openLogFile } from './supervisor/log-file.ts';
export type { Runner } from './supervisor/gateway-process.ts';
export {
  listeningFd,
  type GatewayMessage,
  type GatewayReply,
  type GatewayRequest,
  type StartRequest,
} from './supervisor/messages.ts';
