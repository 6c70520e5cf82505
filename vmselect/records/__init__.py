"""Records: measurements, their file formats, and warnings about them. Imports no ML framework and no numpy."""

from vmselect.records.base import Environment as Environment
from vmselect.records.base import Fact as Fact
from vmselect.records.base import Gpu as Gpu
from vmselect.records.base import Placement as Placement
from vmselect.records.base import Record as Record
from vmselect.records.files import load_profiles as load_profiles
from vmselect.records.files import load_records as load_records
from vmselect.records.forecast import Forecast as Forecast
from vmselect.records.forecast import OutcomeRecord as OutcomeRecord
from vmselect.records.inference import InferenceRecord as InferenceRecord
from vmselect.records.training import Boundary as Boundary
from vmselect.records.training import Epoch as Epoch
from vmselect.records.training import EpochLogs as EpochLogs
from vmselect.records.training import Fit as Fit
from vmselect.records.training import InputWait as InputWait
from vmselect.records.training import Pause as Pause
from vmselect.records.training import Profile as Profile
from vmselect.records.training import Setup as Setup
from vmselect.records.training import Step as Step
from vmselect.records.training import Steps as Steps
from vmselect.records.training import Timeline as Timeline
from vmselect.records.training import Validation as Validation
from vmselect.records.transfer import TransferRecord as TransferRecord
from vmselect.records.usage import Usage as Usage
