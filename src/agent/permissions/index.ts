// Permissions of tools: rules, where they are stored, and their routes.
export { createPermissions, type ConfiguredRule, type Permissions } from './permissions.ts';
export { permissionService } from './service.ts';
export { permissionStore, type PermissionStore } from './store.ts';
