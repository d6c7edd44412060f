-- Health of a ModelDeployment for Argo CD. Without it Argo CD knows no health of the kind and counts it as healthy.
-- Put it into the ConfigMap argocd-cm under resource.customizations.health.shardwright.dev_ModelDeployment;
-- gitops.md shows how. It needs nothing but Lua's base functions, as Argo CD opens no string library.

local function health(status, message)
  return { status = status, message = message }
end

if obj.metadata.deletionTimestamp ~= nil then
  return health("Progressing", "being deleted")
end

-- A new object says -1 until the operator has seen it, and an edited one says the old generation.
local status = obj.status
if status == nil or status.observedGeneration ~= obj.metadata.generation then
  return health("Progressing", "the operator has not seen this generation yet")
end

local conditions = {}
for _, condition in ipairs(status.conditions or {}) do
  conditions[condition.type] = condition
end
local ready, stalled, reconciling = conditions.Ready, conditions.Stalled, conditions.Reconciling

-- Stalled: the operator cannot go on by itself; the message says what to do.
if stalled ~= nil and stalled.status == "True" then
  return health("Degraded", stalled.reason .. ": " .. stalled.message)
end
if ready == nil then
  return health("Progressing", "no condition Ready yet")
end
-- Ready and Reconciling together: all wanted groups serve, and one that is not wanted is on its way out.
if ready.status == "True" and reconciling ~= nil and reconciling.status == "True" then
  return health("Progressing", reconciling.reason .. ": " .. reconciling.message)
end
if ready.status == "True" then
  return health("Healthy", ready.message)
end
-- spec.rollout.paused holds a change back; paused with nothing to hold back is healthy.
if ready.reason == "Paused" then
  return health("Suspended", ready.message)
end
return health("Progressing", ready.reason .. ": " .. ready.message)
